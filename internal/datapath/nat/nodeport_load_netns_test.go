package nat_test

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

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/nat"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// serveBriefly echoes the first message of each connection and closes it, so that the client's port is free at once.
func serveBriefly(p netlab.Netns, tb testing.TB, a netip.Addr) {
	tb.Helper()
	go netlab.AcceptAll(p.ListenTCP(tb, a), func(c net.Conn) {
		defer c.Close()
		b := make([]byte, 16)
		if n, err := c.Read(b); err == nil {
			_, _ = c.Write(b[:n])
		}
	})
}

// asksFrom makes one connection from a fixed port.
func asksFrom(from netip.AddrPort, to netip.AddrPort, say string) error {
	d := net.Dialer{
		Timeout: netlab.Patience, LocalAddr: net.TCPAddrFromAddrPort(from),
		Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }), err)
		},
	}
	c, err := d.DialContext(context.Background(), "tcp", to.String())
	for since := time.Now(); errors.Is(err, unix.EADDRNOTAVAIL) && time.Since(since) < netlab.Patience; {
		time.Sleep(time.Millisecond) // the last ACK of the last connection may be in flight
		c, err = d.DialContext(context.Background(), "tcp", to.String())
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(netlab.Patience)); err != nil {
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

// A client that opens a thousand connections in sequence from one port completes all of them, whether or not the port
// is in the NAT port range.
func TestNodePortFromOnePort(t *testing.T) {
	const times = 500
	netlab.EachPlace(t, netlab.Options{}, false, func(t *testing.T, n *netlab.Network) {
		for family, port := range map[int]uint16{4: 20000, 6: 45000} {
			serveBriefly(n.B1.Netns, t, n.B1.Addr(family))
			from, to := netip.AddrPortFrom(n.ExternalOnSwitch(family), port), netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort)
			n.External.Do(t, func() error {
				for i := range times {
					if err := asksFrom(from, to, fmt.Sprint("number ", i)); err != nil {
						return fmt.Errorf("IPv%d connection %d: %w", family, i, err)
					}
				}
				return nil
			})
		}
		n.DropsNothing(t)
	})
}

// GSO segments are translated as one packet, and every byte arrives.
func TestNodePortSegmentation(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.ServicesConfig(config.AccelerationTC)})
	n.A.ServeNodePort(t, false, n.B1)
	for _, family := range fixtures.Families {
		n.B1.ServeTCP(t, n.B1.Addr(family))
		packets, size := received(n.A.Netns, t)
		const stream = 1 << 22
		if err := netlab.EchoTCP(n.External.DialPort(t, "tcp", netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort)), stream); err != nil {
			t.Errorf("IPv%d: %v", family, err)
		}
		p, s := received(n.A.Netns, t)
		packets, size = p-packets, s-size
		// their size depends on the speed of both ends: a slow sender makes fewer segments at once
		if size < 2*stream || size/packets <= 1500+fixtures.EthLen {
			t.Errorf("IPv%d: %d bytes came in %d packets, which are no larger than the wire allows", family, size, packets)
		}
	}
	n.DropsNothing(t)
}

// received counts packets received by the uplink.
func received(p netlab.Netns, tb testing.TB) (packets, size uint64) {
	tb.Helper()
	p.Do(tb, func() error {
		dev, err := netlink.LinkByName("eth0")
		if err == nil {
			packets, size = dev.Attrs().Statistics.RxPackets, dev.Attrs().Statistics.RxBytes
		}
		return err
	})
	return packets, size
}

// After the load, all its entries expire within their timeouts: external and pod connections, replied and unreplied,
// closed and open, fragmented or not.
func TestTablesBecomeEmpty(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.ServicesConfig(config.AccelerationTC)})
	n.A.ServeNodePort(t, false, n.B1)
	for _, family := range fixtures.Families {
		n.B1.ServeTCP(t, n.B1.Addr(family))
		n.B1.ServeUDP(t, n.B1.Addr(family))
		n.External.ServeUDP(t, fixtures.External.Addr(family))
		netlab.CarriesService(t, *n.External, n.A.Addr(family))
		netlab.CarriesService(t, n.A1.Netns, n.A.Addr(family))                                            // of its own node
		if err := netlab.EchoUDP(n.A2.Dial(t, "udp", fixtures.External.Addr(family)), 3000); err != nil { // masqueraded, fragmented
			t.Error(err)
		}
		silent := n.External.DialPort(t, "udp", netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort+1))
		fixtures.Write(t, silent, "no reply")
		if err := n.A2.Ping(t, n.A2.Addr(family), fixtures.External.Addr(family)); err != nil {
			t.Error(err)
		}
	}
	tables := map[string]*ebpf.Map{
		bpf.MapNat: n.A.D.Objects.Maps.Nat, bpf.MapNatPending: n.A.D.Objects.Maps.NatPending,
		bpf.MapNatPods: n.A.D.Objects.Maps.NatPods, bpf.MapFragments: n.A.D.Objects.Maps.Fragments,
	}
	before := map[string]int{}
	for name, m := range tables {
		count, err := table.Count(m)
		if err != nil || count == 0 && name != bpf.MapNatPending {
			t.Errorf("the load has left nothing in %s: nothing is shown: %v", name, err)
		}
		before[name] = count
	}
	now, err := table.Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	const longest = 6 * time.Hour                                                                // established TCP
	for _, after := range []time.Duration{longest + time.Second, longest + 2*nat.SettlingTime} { // pods are delisted once no entry needs them
		for range nat.ExpiryCalls {
			if _, err := n.A.D.NAT.Expire(now + after); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, m := range tables {
		if count, err := table.Count(m); err != nil || count != 0 {
			t.Errorf("%d of %d entries are left in %s: %v", count, before[name], name, err)
		}
	}
}
