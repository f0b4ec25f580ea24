package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestServicesThroughTunnels translates connections with rules like kube-proxy's and sends them through tunnels: from a
// pod and the node to a Service's remote backend, and from the external machine through a node port, which the backend
// sees as the node.
func TestServicesThroughTunnels(t *testing.T) {
	for _, flags := range [][]string{{"--services=kube-proxy"}, {"--routing=kernel"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			s := newServices(t, append(flags, "--tunnel=vxlan")...)
			for _, n := range s.nodes[:2] {
				s.sysctl(n, "net/ipv4/conf/all/rp_filter", "1")
			}
			for i := range serviceOfFar {
				for _, client := range []machine{s.pod, s.node} {
					s.expectService(client, s.far, serviceOfFar[i])
				}
				s.expectService(s.far, s.near, serviceOfNear[i])
				s.expectDirect(s.pod, s.far, s.far.addresses[i])
			}
			s.openNodePort()
			for i, address := range s.node.addresses {
				to := netip.AddrPortFrom(address, nodePort)
				if err := exchangeTCP(s.outside.netns, s.far.netns, netip.AddrPort{}, to); err != nil {
					t.Errorf("external machine to the node port at %s: %v", to, err)
				}
				seen, err := externalUDPAt(s.outside, s.far, to)
				if err != nil || seen != s.node.addresses[i] {
					t.Errorf("far sees %s through the node port, want %s (error %v)", seen, s.node.addresses[i], err)
				}
			}
			s.wantNoDropsOn(s.nodes[:2])
		})
	}
}

// nodePort is a node port of here that leads to the far pod.
const nodePort = 30080

// openNodePort makes here translate its node port, and masquerade, so that replies return through here.
func (s *services) openNodePort() {
	s.t.Helper()
	rules := "table inet nodeport {\nchain prerouting { type nat hook prerouting priority -100;\n"
	for i, family := range []string{"ip", "ip6"} {
		for _, protocol := range []string{"tcp", "udp"} {
			rules += fmt.Sprintf("%s daddr %s %s dport %d mark set 0x4000 dnat %s to %s\n", family, s.node.addresses[i], protocol, nodePort,
				family, netip.AddrPortFrom(s.far.addresses[i], backendPort))
		}
	}
	rules += "}\nchain postrouting { type nat hook postrouting priority 100; mark 0x4000 masquerade\n}\n}\n"
	if out, err := s.node.netns.Output(s.t.Context(), "nft", rules); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
}

// externalUDPAt returns the client's address as the server on backendPort sees it, for a request to a translated address.
func externalUDPAt(client, backend machine, to netip.AddrPort) (seen netip.Addr, err error) {
	address := backend.addresses[0]
	if to.Addr().Is6() {
		address = backend.addresses[1]
	}
	echo, err := externalEchoAt(backend.netns, netip.AddrPortFrom(address, backendPort))
	if err != nil {
		return seen, err
	}
	defer echo.Close()
	err = client.netns.Do(func() error {
		socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer socket.Close()
		_ = socket.SetDeadline(time.Now().Add(patience))
		seen, _, err = externalRequest(socket, 1)
		return err
	})
	return seen, err
}
