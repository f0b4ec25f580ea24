package fwd_test

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// eachTunnel runs a test with Services on two nodes behind tunnels for each other.
func eachTunnel(t *testing.T, f func(t *testing.T, n *netlab.Network)) {
	for name, o := range map[string]netlab.Options{
		"over IPv4": {Cfg: fixtures.ServicesConfig(config.AccelerationTC), Tunnel: true},
		"over IPv6": {Cfg: fixtures.ServicesConfig(config.AccelerationTC), Tunnel: true, TunnelIPv6: true},
		"kernel routing, strictly": {
			Cfg: config.Datapath{Masquerade: true, Services: true, Acceleration: config.AccelerationTC}, Tunnel: true, Strict: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := netlab.NewNetwork(t, o)
			f(t, n)
		})
	}
}

// A node that is itself the backend of its NodePort replies to clients behind the tunnel with the address that they sent to.
func TestNodePortOfHostThroughTunnel(t *testing.T) {
	eachTunnel(t, func(t *testing.T, n *netlab.Network) {
		for _, family := range fixtures.Families {
			own := n.A.Addr(family)
			findsMTU(t, n.B1.Netns, n.A.Netns, own) // else the first datagram that is too large only finds it out
			n.A.Serve(t, own, own)
			n.A.ServeTCP(t, own)
			n.A.ServeUDP(t, own)
			netlab.CarriesService(t, n.B1.Netns, own)
		}
		n.DropsNothing(t)
	})
}

// TCP learns the MTU of a tunnel to the backend: the client gets the error from the address that it uses.
func TestNodePortIntoTunnelReportsMTU(t *testing.T) {
	eachTunnel(t, func(t *testing.T, n *netlab.Network) {
		for _, family := range fixtures.Families {
			n.A.Serve(t, n.A.Addr(family), n.B1.Addr(family))
			n.B1.ServeTCP(t, n.B1.Addr(family))
			c := n.External.DialPort(t, "tcp", netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort))
			if err := netlab.EchoTCP(c, 1<<18); err != nil {
				t.Errorf("IPv%d: %v", family, err)
			}
			level, option := unix.IPPROTO_IP, unix.IP_MTU
			if family == 6 {
				level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
			}
			carries := n.A.Routes[netlab.RangeOf(n.B1.Addr(family))].MTU
			if mtu := netlab.Sockopt(t, c, level, option); mtu != carries {
				t.Errorf("IPv%d: the client's path MTU is %d, want %d", family, mtu, carries)
			}
		}
		n.DropsNothing(t)
	})
}

// A datagram over IPv4 that may be cut reaches a backend behind a tunnel that carries less. What is around it is cut, where that
// is of IPv4; else the client gets an ICMP error, and fragments what it sends.
func TestNodePortIntoTunnelCuts(t *testing.T) {
	eachTunnel(t, func(t *testing.T, n *netlab.Network) {
		n.A.Serve(t, n.A.V4, n.B1.V4)
		server := n.B1.ListenUDP(t, n.B1.V4)
		c := n.External.DialPort(t, "udp", netip.AddrPortFrom(n.A.V4, fixtures.ServicePort))
		netlab.SetSockopt(t, c, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
		route, carries := n.A.Routes[netlab.RangeOf(n.B1.V4)], 1500
		if route.NextHop.Is6() {
			carries = route.MTU
			large, got := netlab.RandomBytes(1470), make([]byte, 1<<16)
			arrives := func(number byte) bool { // and nothing that was sent before is still to come
				large[0] = number
				fixtures.Write(t, c, string(large))
				if err := server.SetReadDeadline(time.Now().Add(netlab.NothingMore)); err != nil {
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
			for number := byte(0); !arrives(number) && time.Since(begin) < netlab.Patience; number++ {
			}
		}
		for _, size := range []int{1400, 1472, 1471, 100} { // 1472 fill the wire, and more than the tunnel
			sent := netlab.RandomBytes(size)
			fixtures.Write(t, c, string(sent))
			if err := netlab.Expect(server, sent); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
		if mtu := netlab.Sockopt(t, c, unix.IPPROTO_IP, unix.IP_MTU); mtu != carries {
			t.Errorf("the client's path MTU is %d, want %d", mtu, carries)
		}
		n.DropsNothing(t)
	})
}
