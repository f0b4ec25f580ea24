package attach_test

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// runs is how often a program of the node has run, while statistics are enabled.
func runs(n *netlab.Node, tb testing.TB, program string) uint64 {
	tb.Helper()
	all, err := n.D.Programs()
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

// echoes sends TCP and UDP of an external client to a NodePort.
func echoes(n *netlab.Network, tb testing.TB, family int, connections int) {
	tb.Helper()
	frontend := netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort)
	for i := range connections {
		c := n.External.DialPort(tb, "tcp", frontend)
		if err := netlab.EchoTCP(c, 1<<18); err != nil {
			tb.Errorf("IPv%d TCP connection %d: %v", family, i, err)
		}
		d := n.External.DialPort(tb, "udp", frontend)
		for _, size := range []int{1, 17, 1400, 1400, 3} {
			if err := netlab.EchoUDP(d, size); err != nil {
				tb.Errorf("IPv%d UDP connection %d, datagram of %d bytes: %v", family, i, size, err)
			}
		}
		if err := errors.Join(c.Close(), d.Close()); err != nil {
			tb.Error(err)
		}
	}
}

// Packets of an external client to a backend on another node pass at XDP: the node's stack and tc programs see almost
// none.
func TestNodePortXDP(t *testing.T) {
	fixtures.CountRuns(t)
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.ServicesConfig(config.AccelerationXDP)})
	n.A.ServeNodePort(t, false, n.B1)
	n.Accelerate(t, n.A)
	for _, family := range fixtures.Families {
		n.B1.ServeTCP(t, n.B1.Addr(family))
		n.B1.ServeUDP(t, n.B1.Addr(family))
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			xdp, tc, forwarded := runs(n.A, t, bpf.ProgWireXdp), runs(n.A, t, bpf.ProgFromWire), n.A.Forwarded(t)
			began := time.Now()
			echoes(n, t, family, 10)
			xdp, tc, forwarded = runs(n.A, t, bpf.ProgWireXdp)-xdp, runs(n.A, t, bpf.ProgFromWire)-tc, n.A.Forwarded(t)-forwarded
			t.Logf("%d packets at XDP, %d of them at tc, %d forwarded by the stack", xdp, tc, forwarded)
			// At most one packet per second and CPU renews the kernel's route; the rest are ARP and the like.
			renewals := uint64(runtime.NumCPU()) * uint64(time.Since(began)/time.Second)
			if tc > xdp/100+renewals || xdp < 500 || forwarded > 0 {
				t.Errorf("of %d packets %d reached tc and the stack forwarded %d", xdp, tc, forwarded)
			}
		})
	}
	n.DropsNothing(t)
}

// Nothing is lost when the program is replaced while it forwards: the link is updated in place.
func TestAccelerateAgain(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.ServicesConfig(config.AccelerationXDP)})
	n.A.ServeNodePort(t, false, n.B1)
	n.Accelerate(t, n.A)
	n.B1.ServeTCP(t, n.B1.V4)
	c := n.External.DialPort(t, "tcp", netip.AddrPortFrom(n.A.V4, fixtures.ServicePort))
	before := xdpLink(n.A, t)
	for range 3 {
		old := n.A.D
		n.A.Start(t, false)
		n.A.Do(t, func() error {
			_, err := n.A.D.Accelerate("eth0", n.A.Uplink.Index)
			return errors.Join(err, n.A.D.CheckUplink("eth0", n.A.Uplink.Index), old.Close())
		})
		if err := netlab.EchoTCP(c, 1<<16); err != nil {
			t.Fatal(err)
		}
	}
	if after := xdpLink(n.A, t); after != before {
		t.Errorf("link %d became link %d", before, after)
	}
	// It is detached when it is not wanted any more, and the connection continues.
	n.A.Cfg.Acceleration = config.AccelerationTC
	old := n.A.D
	n.A.Start(t, false)
	n.A.Do(t, func() error {
		_, err := n.A.D.Accelerate("eth0", n.A.Uplink.Index)
		return errors.Join(err, old.Close())
	})
	if err := netlab.EchoTCP(c, 1<<16); err != nil {
		t.Fatal(err)
	}
	attached := true
	for begin := time.Now(); attached && time.Since(begin) < netlab.Patience; time.Sleep(10 * time.Millisecond) { // the kernel releases it in the background
		n.A.Do(t, func() error {
			dev, err := netlink.LinkByName("eth0")
			attached = err != nil || dev.Attrs().Xdp != nil && dev.Attrs().Xdp.Attached
			return err
		})
	}
	if attached {
		t.Error("the program is still there")
	}
}

// xdpLink is the ID of the link of wire_xdp on the uplink.
func xdpLink(n *netlab.Node, tb testing.TB) link.ID {
	tb.Helper()
	l, err := link.LoadPinnedLink(n.D.PinOf(attach.Attachment{Device: "eth0", Program: bpf.ProgWireXdp}), nil)
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

// With auto, tc forwards on a veth. With xdp, a device with another XDP program is an error, and tc forwards.
func TestAccelerateElsewhere(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.ServicesConfig(config.AccelerationAuto)})
	n.A.Do(t, func() error {
		got, err := n.A.D.Accelerate("eth0", n.A.Uplink.Index)
		if err == nil && got.Hook != config.AccelerationTC {
			err = fmt.Errorf("a veth is accelerated by %s", got.Hook)
		}
		return err
	})
	n.A.Cfg.Acceleration = config.AccelerationXDP
	n.A.Start(t, false)
	pass, err := harness.PassXDP()
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	n.A.Do(t, func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: n.A.Uplink.Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		defer l.Close()
		got, err := n.A.D.Accelerate("eth0", n.A.Uplink.Index)
		if err == nil || got.Hook != config.AccelerationTC {
			return fmt.Errorf("a device with another XDP program is %+v, %w", got, err)
		}
		return nil
	})
}
