package datapath

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eachTunnel runs a test with Services on two nodes behind tunnels for each other.
func eachTunnel(t *testing.T, f func(t *testing.T, n *network)) {
	for name, o := range map[string]options{
		"over IPv4": {cfg: servicesConfig(AccelerationTC), tunnel: true},
		"over IPv6": {cfg: servicesConfig(AccelerationTC), tunnel: true, tunnelIPv6: true},
		"kernel routing, strictly": {
			cfg: Config{Masquerade: true, Services: true, Acceleration: AccelerationTC}, tunnel: true, strict: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, o)
			f(t, n)
		})
	}
}

// A node that is itself the backend of its NodePort answers clients behind the tunnel with the address that they have asked.
func TestNodePortOfHostThroughTunnel(t *testing.T) {
	eachTunnel(t, func(t *testing.T, n *network) {
		for _, family := range families {
			own := n.a.addr(family)
			findsMTU(t, n.b1.place, n.a.place, own) // else the first datagram that is too large only finds it out
			n.a.serve(t, own, own)
			n.a.serveTCP(t, own)
			n.a.serveUDP(t, own)
			carriesService(t, n.b1.place, own)
		}
		n.dropsNothing(t)
	})
}

// TCP finds out what a tunnel to the backend carries: the client is told as if by whom it has asked.
func TestNodePortIntoTunnelTellsSize(t *testing.T) {
	eachTunnel(t, func(t *testing.T, n *network) {
		for _, family := range families {
			n.a.serve(t, n.a.addr(family), n.b1.addr(family))
			n.b1.serveTCP(t, n.b1.addr(family))
			c := n.world.dialPort(t, "tcp", netip.AddrPortFrom(n.a.addr(family), worldPort))
			if err := echoTCP(c, 1<<18); err != nil {
				t.Errorf("IPv%d: %v", family, err)
			}
			level, option := unix.IPPROTO_IP, unix.IP_MTU
			if family == 6 {
				level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
			}
			carries := n.a.routes[rangeOf(n.b1.addr(family))].MTU
			if mtu := sockopt(t, c, level, option); mtu != carries {
				t.Errorf("IPv%d: the client takes the way to carry %d bytes, not %d", family, mtu, carries)
			}
		}
		n.dropsNothing(t)
	})
}

// A datagram over IPv4 that may be cut reaches a backend behind a tunnel that carries less. What is around it is cut, where that
// is of IPv4; else the client is told, and cuts what it sends.
func TestNodePortIntoTunnelCuts(t *testing.T) {
	eachTunnel(t, func(t *testing.T, n *network) {
		n.a.serve(t, n.a.v4, n.b1.v4)
		server := n.b1.listenUDP(t, n.b1.v4)
		c := n.world.dialPort(t, "udp", netip.AddrPortFrom(n.a.v4, worldPort))
		setSockopt(t, c, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
		way, carries := n.a.routes[rangeOf(n.b1.v4)], 1500
		if way.NextHop.Is6() {
			carries = way.MTU
			large, got := randomBytes(1470), make([]byte, 1<<16)
			arrives := func(number byte) bool { // and nothing that was sent before is still to come
				large[0] = number
				write(t, c, string(large))
				if err := server.SetReadDeadline(time.Now().Add(nothingMore)); err != nil {
					t.Fatal(err)
				}
				for {
					if _, err := server.Read(got); err != nil {
						return false
					}
					if got[0] == number {
						return true
					}
				}
			}
			begin := time.Now()
			for number := byte(0); !arrives(number) && time.Since(begin) < patience; number++ {
			}
		}
		for _, size := range []int{1400, 1472, 1471, 100} { // 1472 fill the wire, and more than the tunnel
			sent := randomBytes(size)
			write(t, c, string(sent))
			if err := expect(server, sent); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
		if mtu := sockopt(t, c, unix.IPPROTO_IP, unix.IP_MTU); mtu != carries {
			t.Errorf("the client takes the way to carry %d bytes, not %d", mtu, carries)
		}
		n.dropsNothing(t)
	})
}
