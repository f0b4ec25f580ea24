package datapath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// serveBriefly answers each connection with what it is told first, and ends it: the client's port is free at once.
func (p place) serveBriefly(tb testing.TB, a netip.Addr) {
	tb.Helper()
	go acceptAll(p.listenTCP(tb, a), func(c net.Conn) {
		defer c.Close()
		b := make([]byte, 16)
		if n, err := c.Read(b); err == nil {
			_, _ = c.Write(b[:n])
		}
	})
}

// asksFrom makes one connection from a port that is the same each time.
func asksFrom(from netip.AddrPort, to netip.AddrPort, say string) error {
	d := net.Dialer{
		Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(from),
		Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }), err)
		},
	}
	c, err := d.DialContext(context.Background(), "tcp", to.String())
	for since := time.Now(); errors.Is(err, unix.EADDRNOTAVAIL) && time.Since(since) < patience; {
		time.Sleep(time.Millisecond) // the last connection's last acknowledgment is still on its way
		c, err = d.DialContext(context.Background(), "tcp", to.String())
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, say); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && string(got) != say {
		err = fmt.Errorf("%q was answered with %q", say, got)
	}
	return err
}

// A client that opens a thousand connections from one port, each as soon as the last one has ended, gets them all, whether the port
// is one that translation gives or not.
func TestNodePortFromOnePort(t *testing.T) {
	const times = 500
	eachPlace(t, options{}, false, func(t *testing.T, n *network) {
		for family, port := range map[int]uint16{4: 20000, 6: 45000} {
			n.b1.serveBriefly(t, n.b1.addr(family))
			from, to := netip.AddrPortFrom(n.worldOnSwitch(family), port), netip.AddrPortFrom(n.a.addr(family), worldPort)
			n.world.do(t, func() error {
				for i := range times {
					if err := asksFrom(from, to, fmt.Sprint("number ", i)); err != nil {
						return fmt.Errorf("IPv%d connection %d: %w", family, i, err)
					}
				}
				return nil
			})
		}
		n.dropsNothing(t)
	})
}

// Segments that the sender's stack left whole (GSO) are translated as one packet, and every byte arrives.
func TestNodePortSegmentation(t *testing.T) {
	n := newNetwork(t, options{cfg: servicesConfig(AccelerationTC)})
	n.a.serveNodePort(t, false, n.b1)
	for _, family := range families {
		n.b1.serveTCP(t, n.b1.addr(family))
		packets, size := n.a.received(t)
		const stream = 1 << 22
		if err := echoTCP(n.world.dialPort(t, "tcp", netip.AddrPortFrom(n.a.addr(family), worldPort)), stream); err != nil {
			t.Errorf("IPv%d: %v", family, err)
		}
		p, s := n.a.received(t)
		packets, size = p-packets, s-size
		// How much larger they are is a matter of how fast both ends are: a slow sender makes fewer segments at once.
		if size < 2*stream || size/packets <= 1500+ethLen {
			t.Errorf("IPv%d: %d bytes came in %d packets, which are no larger than the wire allows", family, size, packets)
		}
	}
	n.dropsNothing(t)
}

// received counts what has come through the uplink.
func (p place) received(tb testing.TB) (packets, size uint64) {
	tb.Helper()
	p.do(tb, func() error {
		dev, err := netlink.LinkByName("eth0")
		if err == nil {
			packets, size = dev.Attrs().Statistics.RxPackets, dev.Attrs().Statistics.RxBytes
		}
		return err
	})
	return packets, size
}

// When the load has ended, all that it has left in the tables goes within its timeouts: connections of the world and of pods,
// answered and not, ended and left open, in one piece and in several.
func TestTablesBecomeEmpty(t *testing.T) {
	n := newNetwork(t, options{cfg: servicesConfig(AccelerationTC)})
	n.a.serveNodePort(t, false, n.b1)
	for _, family := range families {
		n.b1.serveTCP(t, n.b1.addr(family))
		n.b1.serveUDP(t, n.b1.addr(family))
		n.world.serveUDP(t, world.addr(family))
		carriesService(t, *n.world, n.a.addr(family))
		carriesService(t, n.a1.place, n.a.addr(family))                                // of its own node
		if err := echoUDP(n.a2.dial(t, "udp", world.addr(family)), 3000); err != nil { // masqueraded, in pieces
			t.Error(err)
		}
		silent := n.world.dialPort(t, "udp", netip.AddrPortFrom(n.a.addr(family), worldPort+1))
		write(t, silent, "to nobody")
		if err := n.a2.ping(t, n.a2.addr(family), world.addr(family)); err != nil {
			t.Error(err)
		}
	}
	tables := map[string]*ebpf.Map{
		bpfMapNat: n.a.d.objects.maps.Nat, bpfMapNatPending: n.a.d.objects.maps.NatPending,
		bpfMapNatPods: n.a.d.objects.maps.NatPods, bpfMapFragments: n.a.d.objects.maps.Fragments,
	}
	before := map[string]int{}
	for name, m := range tables {
		count, err := countEntries(m)
		if err != nil || count == 0 && name != bpfMapNatPending {
			t.Errorf("the load has left nothing in %s: nothing is shown: %v", name, err)
		}
		before[name] = count
	}
	now, err := Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	const longest = 6 * time.Hour                                                            // TCP that is established
	for _, after := range []time.Duration{longest + time.Second, longest + 2*settlingTime} { // pods go once nothing needs them
		for range expiryCalls {
			if _, err := n.a.d.Connections.Expire(now + after); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, m := range tables {
		if count, err := countEntries(m); err != nil || count != 0 {
			t.Errorf("%d of %d entries are left in %s: %v", count, before[name], name, err)
		}
	}
}
