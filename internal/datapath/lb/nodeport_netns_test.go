package lb_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// A Service without backends rejects TCP and UDP of an external client.
func TestNodePortRejected(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.ServicesConfig(config.AccelerationTC)})
	n.A.ServeNodePort(t, false)
	for _, family := range fixtures.Families {
		frontend := netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort)
		for name, from := range map[string]netlab.Netns{"an external host": *n.External, "a pod": n.A1.Netns, "a pod of another node": n.B1.Netns} {
			netlab.Rejects(t, name, from, frontend)
		}
	}
}

// Fragmented datagrams reach the backend and return fragmented.
func TestNodePortFragments(t *testing.T) {
	netlab.EachPlace(t, netlab.Options{}, false, func(t *testing.T, n *netlab.Network) {
		for _, family := range fixtures.Families {
			n.B1.ServeUDP(t, n.B1.Addr(family))
			c := n.External.DialPort(t, "udp", netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort))
			for i := range 5 {
				if err := netlab.EchoUDP(c, 8192+i); err != nil {
					t.Errorf("IPv%d: %v", family, err)
				}
			}
		}
		n.DropsNothing(t)
	})
}

// The path from the node to the backend has a lower MTU than the client's: TCP adapts by ICMP errors, which must come
// from the address that the client uses.
func TestNodePortPathMTU(t *testing.T) {
	netlab.EachPlace(t, netlab.Options{RemoteMTU: 1300}, false, func(t *testing.T, n *netlab.Network) {
		for _, family := range fixtures.Families {
			n.B1.ServeTCP(t, n.B1.Addr(family))
			c := n.External.DialPort(t, "tcp", netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort))
			if err := netlab.EchoTCP(c, 1<<17); err != nil {
				t.Errorf("IPv%d: %v", family, err)
			}
			level, option := unix.IPPROTO_IP, unix.IP_MTU
			if family == 6 {
				level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
			}
			if mtu := netlab.Sockopt(t, c, level, option); mtu != 1300 {
				t.Errorf("IPv%d: the client takes the way to carry %d bytes", family, mtu)
			}
		}
	})
}

// With DSR the backend sees the client, replies bypass the forwarding node, and the MTU is unchanged.
func TestNodePortDSR(t *testing.T) {
	fixtures.CountRuns(t)
	netlab.EachPlace(t, netlab.Options{}, true, func(t *testing.T, n *netlab.Network) {
		for _, family := range fixtures.Families {
			seen := acceptOne(n.B1.Netns, t, n.B1.Addr(family))
			n.B1.ServeUDP(t, n.B1.Addr(family))
			c := n.External.DialPort(t, "tcp", netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort))
			if err := netlab.EchoTCP(c, 1<<18); err != nil {
				t.Fatalf("IPv%d: %v", family, err)
			}
			if want := c.LocalAddr().String(); <-seen != want {
				t.Errorf("IPv%d: the backend does not see the client %s", family, want)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			d := n.External.DialPort(t, "udp", netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort))
			for _, size := range []int{1, 1452, 8000, 33} {
				if err := netlab.EchoUDP(d, size); err != nil {
					t.Errorf("IPv%d UDP, %d bytes: %v", family, size, err)
				}
			}
			// No reply passes the forwarding node: it sees only the client's packets.
			sent, arrived := sentPackets(*n.External, t), receivedPackets(n.A.Netns, t)
			for range 200 {
				if err := netlab.EchoUDP(d, 100); err != nil {
					t.Fatal(err)
				}
			}
			sent, arrived = sentPackets(*n.External, t)-sent, receivedPackets(n.A.Netns, t)-arrived
			if sent < 200 || arrived > sent+50 {
				t.Errorf("IPv%d: the client has sent %d packets and the forwarding node received %d", family, sent, arrived)
			}
		}
		n.DropsNothing(t)
	})
}

// acceptOne echoes one connection and returns its client.
func acceptOne(p netlab.Netns, tb testing.TB, a netip.Addr) <-chan string {
	tb.Helper()
	seen := make(chan string, 1)
	l := p.ListenTCP(tb, a)
	go func() {
		c, err := l.Accept()
		if err != nil {
			seen <- err.Error()
			return
		}
		seen <- c.RemoteAddr().String()
		netlab.Echo(c, c)
	}()
	return seen
}

func sentPackets(p netlab.Netns, tb testing.TB) uint64 {
	tb.Helper()
	sent, _ := p.UplinkPackets(tb)
	return sent
}

func receivedPackets(p netlab.Netns, tb testing.TB) uint64 {
	tb.Helper()
	_, received := p.UplinkPackets(tb)
	return received
}

// A backend's node with another view (here: its backend is on the first node) forwards with its own address.
func TestNodePortDSRViewsDiffer(t *testing.T) {
	cfg := fixtures.ServicesConfig(config.AccelerationTC)
	cfg.DSR = true
	n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
	n.A.ServeNodePort(t, true, n.B1)
	n.B.ServeNodePort(t, true, n.A1)
	for _, family := range fixtures.Families {
		n.A1.ServeUDP(t, n.A1.Addr(family))
		c := n.External.DialPort(t, "udp", netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort))
		if err := netlab.EchoUDP(c, 100); err != nil {
			t.Errorf("IPv%d: %v", family, err)
		}
	}
}

// An ICMP error about a reply goes to the node that the client uses, and from there to the backend.
func TestNodePortDSRErrors(t *testing.T) {
	cfg := fixtures.ServicesConfig(config.AccelerationTC)
	cfg.DSR = true
	n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
	n.A.ServeNodePort(t, true, n.B1)
	n.B.ServeNodePort(t, true, n.B1)
	server := n.B1.ListenUDP(t, n.B1.V4)
	client := n.External.DialPort(t, "udp", netip.AddrPortFrom(n.A.V4, fixtures.ServicePort))
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if err := server.SetReadDeadline(time.Now().Add(netlab.Patience)); err != nil {
		t.Fatal(err)
	}
	_, from, err := server.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatal(err)
	}
	errs := n.B1.ListenICMP(t, n.B1.V4)
	if err := client.Close(); err != nil { // its host replies now that the port is closed
		t.Fatal(err)
	}
	if _, err := server.WriteToUDPAddrPort([]byte("gone?"), from); err != nil {
		t.Fatal(err)
	}
	_, err = netlab.AwaitICMP(errs, func(kind, code byte, body []byte) bool {
		return kind == 3 && code == 3 && len(body) >= 4+fixtures.Ipv4Len+8 &&
			[4]byte(body[4+12:]) == n.B1.V4.As4() && binary.BigEndian.Uint16(body[4+fixtures.Ipv4Len:]) == netlab.EchoPort
	})
	if err != nil {
		t.Errorf("the backend does not learn that the client is gone: %v (%s)", err, fmt.Sprint(n.A.Dropped(t), n.B.Dropped(t)))
	}
}
