package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eachPlace runs a test with NodePorts forwarded at tc and at XDP.
func eachPlace(t *testing.T, o options, dsr bool, f func(t *testing.T, n *network)) {
	for _, place := range []Acceleration{AccelerationTC, AccelerationXDP} {
		t.Run(string(place), func(t *testing.T) {
			o.cfg = servicesConfig(place)
			o.cfg.DSR = dsr
			n := newNetwork(t, o)
			n.a.serveNodePort(t, dsr, n.b1)
			n.b.serveNodePort(t, dsr, n.b1)
			if place == AccelerationXDP {
				n.accelerate(t, n.a)
			}
			f(t, n)
		})
	}
}

// A client of the world sees that nobody serves: its connect is refused, and so is its datagram.
func TestNodePortRefused(t *testing.T) {
	n := newNetwork(t, options{cfg: servicesConfig(AccelerationTC)})
	n.a.serveNodePort(t, false)
	for _, family := range families {
		frontend := netip.AddrPortFrom(n.a.addr(family), worldPort)
		for name, from := range map[string]place{"the world": *n.world, "a pod": n.a1.place, "a pod of another node": n.b1.place} {
			from.do(t, func() error {
				c, err := net.DialTimeout("tcp", frontend.String(), patience)
				if err == nil {
					c.Close()
				}
				if !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("IPv%d TCP from %s: %v", family, name, err)
				}
				return nil
			})
			c := from.dialPort(t, "udp", frontend)
			if _, err := c.Write([]byte("anybody?")); err != nil {
				t.Fatal(err)
			}
			if err := expect(c, nil); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("IPv%d UDP from %s: %v", family, name, err)
			}
		}
	}
}

// Datagrams that come in pieces reach the backend and come back in pieces.
func TestNodePortFragments(t *testing.T) {
	eachPlace(t, options{}, false, func(t *testing.T, n *network) {
		for _, family := range families {
			n.b1.serveUDP(t, n.b1.addr(family))
			c := n.world.dialPort(t, "udp", netip.AddrPortFrom(n.a.addr(family), worldPort))
			for i := range 5 {
				if err := echoUDP(c, 8192+i); err != nil {
					t.Errorf("IPv%d: %v", family, err)
				}
			}
		}
		n.dropsNothing(t)
	})
}

// The way from the node to the backend carries less than the client's: TCP finds out by the errors, which the client
// must get as if they came from where it has connected to.
func TestNodePortPathMTU(t *testing.T) {
	eachPlace(t, options{remoteMTU: 1300}, false, func(t *testing.T, n *network) {
		for _, family := range families {
			n.b1.serveTCP(t, n.b1.addr(family))
			c := n.world.dialPort(t, "tcp", netip.AddrPortFrom(n.a.addr(family), worldPort))
			if err := echoTCP(c, 1<<17); err != nil {
				t.Errorf("IPv%d: %v", family, err)
			}
			level, option := unix.IPPROTO_IP, unix.IP_MTU
			if family == 6 {
				level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
			}
			if mtu := sockopt(t, c, level, option); mtu != 1300 {
				t.Errorf("IPv%d: the client takes the way to carry %d bytes", family, mtu)
			}
		}
	})
}

// With DSR the backend sees the client, the answers pass the forwarding node by, and nothing has to be smaller.
func TestNodePortDSR(t *testing.T) {
	countRuns(t)
	eachPlace(t, options{}, true, func(t *testing.T, n *network) {
		for _, family := range families {
			seen := n.b1.acceptOne(t, n.b1.addr(family))
			n.b1.serveUDP(t, n.b1.addr(family))
			c := n.world.dialPort(t, "tcp", netip.AddrPortFrom(n.a.addr(family), worldPort))
			if err := echoTCP(c, 1<<18); err != nil {
				t.Fatalf("IPv%d: %v", family, err)
			}
			if want := c.LocalAddr().String(); <-seen != want {
				t.Errorf("IPv%d: the backend does not see the client %s", family, want)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			d := n.world.dialPort(t, "udp", netip.AddrPortFrom(n.a.addr(family), worldPort))
			for _, size := range []int{1, 1452, 8000, 33} {
				if err := echoUDP(d, size); err != nil {
					t.Errorf("IPv%d UDP, %d bytes: %v", family, size, err)
				}
			}
			// Nobody answers by way of the forwarding node: it sees as many packets as the client sends.
			sent, arrived := n.world.sentPackets(t), n.a.receivedPackets(t)
			for range 200 {
				if err := echoUDP(d, 100); err != nil {
					t.Fatal(err)
				}
			}
			sent, arrived = n.world.sentPackets(t)-sent, n.a.receivedPackets(t)-arrived
			if sent < 200 || arrived > sent+50 {
				t.Errorf("IPv%d: the client has sent %d packets and the forwarding node received %d", family, sent, arrived)
			}
		}
		n.dropsNothing(t)
	})
}

// acceptOne echoes one connection and tells who opened it.
func (p place) acceptOne(tb testing.TB, a netip.Addr) <-chan string {
	tb.Helper()
	seen := make(chan string, 1)
	l := p.listenTCP(tb, a)
	go func() {
		c, err := l.Accept()
		if err != nil {
			seen <- err.Error()
			return
		}
		seen <- c.RemoteAddr().String()
		echo(c, c)
	}()
	return seen
}

func (p place) sentPackets(tb testing.TB) uint64 {
	tb.Helper()
	sent, _ := p.uplinkPackets(tb)
	return sent
}

func (p place) receivedPackets(tb testing.TB) uint64 {
	tb.Helper()
	_, received := p.uplinkPackets(tb)
	return received
}

// A backend's node whose view differs (here: its backend is on the first node) forwards with its own address instead.
func TestNodePortDSRViewsDiffer(t *testing.T) {
	cfg := servicesConfig(AccelerationTC)
	cfg.DSR = true
	n := newNetwork(t, options{cfg: cfg})
	n.a.serveNodePort(t, true, n.b1)
	n.b.serveNodePort(t, true, n.a1)
	for _, family := range families {
		n.a1.serveUDP(t, n.a1.addr(family))
		c := n.world.dialPort(t, "udp", netip.AddrPortFrom(n.a.addr(family), worldPort))
		if err := echoUDP(c, 100); err != nil {
			t.Errorf("IPv%d: %v", family, err)
		}
	}
}

// An ICMP error about an answer goes to the node that the client knows, and from there to the backend.
func TestNodePortDSRErrors(t *testing.T) {
	cfg := servicesConfig(AccelerationTC)
	cfg.DSR = true
	n := newNetwork(t, options{cfg: cfg})
	n.a.serveNodePort(t, true, n.b1)
	n.b.serveNodePort(t, true, n.b1)
	server := n.b1.listenUDP(t, n.b1.v4)
	client := n.world.dialPort(t, "udp", netip.AddrPortFrom(n.a.v4, worldPort))
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if err := server.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, from, err := server.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatal(err)
	}
	errs := n.b1.listenICMP(t, n.b1.v4)
	if err := client.Close(); err != nil { // its host answers now that nobody is there
		t.Fatal(err)
	}
	if _, err := server.WriteToUDPAddrPort([]byte("gone?"), from); err != nil {
		t.Fatal(err)
	}
	_, err = awaitICMP(errs, func(kind, code byte, body []byte) bool {
		return kind == 3 && code == 3 && len(body) >= 4+ipv4Len+8 &&
			[4]byte(body[4+12:]) == n.b1.v4.As4() && binary.BigEndian.Uint16(body[4+ipv4Len:]) == echoPort
	})
	if err != nil {
		t.Errorf("the backend does not learn that the client is gone: %v (%s)", err, fmt.Sprint(n.a.dropped(t), n.b.dropped(t)))
	}
}
