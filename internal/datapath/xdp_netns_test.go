package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// worldPort is a NodePort.
const worldPort = 30080

// servicesConfig is that of a node which translates Services.
func servicesConfig(a Acceleration) Config {
	return Config{EBPFRouting: true, Masquerade: true, Services: true, Acceleration: a}
}

// serveNodePort gives the node a NodePort of both families and protocols, whose backends are the echo servers of a pod.
func (n *node) serveNodePort(tb testing.TB, dsr bool, backends ...*pod) {
	tb.Helper()
	var ports []service.Port
	for i, protocol := range []cluster.Protocol{cluster.TCP, cluster.UDP} {
		p := service.Port{Name: service.PortName{Service: cluster.Key{Namespace: "default", Name: "echo"}, Number: uint16(1 + i), Protocol: protocol}}
		for _, family := range families {
			b := service.Backends{Maglev: len(backends) > 0}
			for _, pod := range backends {
				b.Addresses = append(b.Addresses, netip.AddrPortFrom(pod.addr(family), echoPort))
			}
			p.Entries = append(p.Entries, service.Entry{
				Frontend: service.Frontend{Address: n.addr(family), Port: worldPort, Protocol: protocol},
				Kind:     service.KindNodePort, Inside: b, Outside: b, DSR: dsr,
			})
		}
		ports = append(ports, p)
	}
	if err := n.d.Services.Apply(ports, nil); err != nil {
		tb.Fatal(err)
	}
	uplink := Uplink{IPv4: n.v4, IPv6: n.v6, MAC: n.mac, MTU: 1500}
	if _, err := n.d.Uplinks.Sync(map[int]Uplink{n.uplink.Index: uplink}); err != nil {
		tb.Fatal(err)
	}
}

// accelerate puts wire_xdp on the node's uplink. The switch's end gets what XDP on veth needs of it: a program, so that
// frames can be sent to it past any skb, and finished checksums, since XDP sees no promise to finish them.
func (n *network) accelerate(tb testing.TB, node *node) {
	tb.Helper()
	n.sw.do(tb, func() error {
		port, err := netlink.LinkByName(fmt.Sprintf("port%x", node.mac[4]))
		if err != nil {
			return err
		}
		pass, err := passXDP()
		if err != nil {
			return err
		}
		tb.Cleanup(func() { pass.Close() })
		l, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: port.Attrs().Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		tb.Cleanup(func() { l.Close() })
		return testenv.FinishChecksums(port.Attrs().Name)
	})
	node.do(tb, func() error {
		got, err := node.d.Accelerate("eth0", node.uplink.Index)
		if err == nil && got.Place != AccelerationXDP {
			err = fmt.Errorf("the uplink is accelerated by %s, since %s", got.Place, got.Reason)
		}
		return err
	})
}

// runs counts how often a program of the node has run, while statistics are on.
func (n *node) runs(tb testing.TB, program string) uint64 {
	tb.Helper()
	all, err := n.d.Programs()
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range all {
		if p.Name == program {
			return p.RunCount
		}
	}
	tb.Fatalf("no program %s", program)
	return 0
}

// countRuns turns the kernel's statistics of programs on for the test.
func countRuns(tb testing.TB) {
	tb.Helper()
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { stats.Close() })
}

// echoes lets the world talk to a NodePort, with TCP and UDP.
func (n *network) echoes(tb testing.TB, family int, connections int) {
	tb.Helper()
	frontend := netip.AddrPortFrom(n.a.addr(family), worldPort)
	for i := range connections {
		c := n.world.dialPort(tb, "tcp", frontend)
		if err := echoTCP(c, 1<<18); err != nil {
			tb.Errorf("IPv%d TCP connection %d: %v", family, i, err)
		}
		d := n.world.dialPort(tb, "udp", frontend)
		for _, size := range []int{1, 17, 1400, 1400, 3} {
			if err := echoUDP(d, size); err != nil {
				tb.Errorf("IPv%d UDP connection %d, datagram of %d bytes: %v", family, i, size, err)
			}
		}
		if err := errors.Join(c.Close(), d.Close()); err != nil {
			tb.Error(err)
		}
	}
}

// A client of the world reaches the backend on another node through XDP alone: the node's stack and its tc programs see
// next to nothing of it.
func TestNodePortXDP(t *testing.T) {
	countRuns(t)
	n := newNetwork(t, options{cfg: servicesConfig(AccelerationXDP)})
	n.a.serveNodePort(t, false, n.b1)
	n.accelerate(t, n.a)
	for _, family := range families {
		n.b1.serveTCP(t, n.b1.addr(family))
		n.b1.serveUDP(t, n.b1.addr(family))
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			xdp, tc, forwarded := n.a.runs(t, bpfProgWireXdp), n.a.runs(t, bpfProgFromWire), n.a.forwarded(t)
			began := time.Now()
			n.echoes(t, family, 10)
			xdp, tc, forwarded = n.a.runs(t, bpfProgWireXdp)-xdp, n.a.runs(t, bpfProgFromWire)-tc, n.a.forwarded(t)-forwarded
			t.Logf("%d packets at XDP, %d of them at tc, %d forwarded by the stack", xdp, tc, forwarded)
			// At most one a second of each CPU follows the kernel's routes anew; the rest are ARP and its like.
			anew := uint64(runtime.NumCPU()) * uint64(time.Since(began)/time.Second)
			if tc > xdp/100+anew || xdp < 500 || forwarded > 0 {
				t.Errorf("of %d packets %d reached tc and the stack forwarded %d", xdp, tc, forwarded)
			}
		})
	}
	n.dropsNothing(t)
}

// Nothing is lost when the program is replaced while it forwards, as by a new agent: the link is updated in place.
func TestAccelerateAgain(t *testing.T) {
	n := newNetwork(t, options{cfg: servicesConfig(AccelerationXDP)})
	n.a.serveNodePort(t, false, n.b1)
	n.accelerate(t, n.a)
	n.b1.serveTCP(t, n.b1.v4)
	c := n.world.dialPort(t, "tcp", netip.AddrPortFrom(n.a.v4, worldPort))
	before := n.a.xdpLink(t)
	for range 3 {
		old := n.a.d
		n.a.start(t, false)
		n.a.do(t, func() error {
			_, err := n.a.d.Accelerate("eth0", n.a.uplink.Index)
			return errors.Join(err, n.a.d.CheckUplink("eth0", n.a.uplink.Index), old.Close())
		})
		if err := echoTCP(c, 1<<16); err != nil {
			t.Fatal(err)
		}
	}
	if after := n.a.xdpLink(t); after != before {
		t.Errorf("link %d became link %d", before, after)
	}
	// And it goes when it is not wanted any more, without the connection.
	n.a.cfg.Acceleration = AccelerationTC
	old := n.a.d
	n.a.start(t, false)
	n.a.do(t, func() error {
		_, err := n.a.d.Accelerate("eth0", n.a.uplink.Index)
		return errors.Join(err, old.Close())
	})
	if err := echoTCP(c, 1<<16); err != nil {
		t.Fatal(err)
	}
	attached := true
	for begin := time.Now(); attached && time.Since(begin) < patience; time.Sleep(10 * time.Millisecond) { // the kernel lets go of it in the background
		n.a.do(t, func() error {
			dev, err := netlink.LinkByName("eth0")
			attached = err != nil || dev.Attrs().Xdp != nil && dev.Attrs().Xdp.Attached
			return err
		})
	}
	if attached {
		t.Error("the program is still there")
	}
}

// xdpLink gives the id of the link by which wire_xdp is on the uplink.
func (n *node) xdpLink(tb testing.TB) link.ID {
	tb.Helper()
	l, err := link.LoadPinnedLink(n.d.pinOf(Attachment{"eth0", bpfProgWireXdp}), nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		tb.Fatal(err)
	}
	return info.ID
}

// With auto a veth is left to tc, which forwards the same connections; with xdp, a device that is taken is an error and
// tc forwards.
func TestAccelerateElsewhere(t *testing.T) {
	n := newNetwork(t, options{cfg: servicesConfig(AccelerationAuto)})
	n.a.do(t, func() error {
		got, err := n.a.d.Accelerate("eth0", n.a.uplink.Index)
		if err == nil && got.Place != AccelerationTC {
			err = fmt.Errorf("a veth is accelerated by %s", got.Place)
		}
		return err
	})
	n.a.cfg.Acceleration = AccelerationXDP
	n.a.start(t, false)
	pass, err := passXDP()
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	n.a.do(t, func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: n.a.uplink.Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		defer l.Close()
		got, err := n.a.d.Accelerate("eth0", n.a.uplink.Index)
		if err == nil || got.Place != AccelerationTC {
			return fmt.Errorf("a device with another XDP program is %+v, %w", got, err)
		}
		return nil
	})
}

// uplinkPackets counts what eth0 of a place has sent and received.
func (p place) uplinkPackets(tb testing.TB) (sent, received uint64) {
	tb.Helper()
	p.do(tb, func() error {
		dev, err := netlink.LinkByName("eth0")
		if err == nil {
			sent, received = dev.Attrs().Statistics.TxPackets, dev.Attrs().Statistics.RxPackets
		}
		return err
	})
	return sent, received
}
