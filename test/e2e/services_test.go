package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
)

// ClusterIPs of Services, one for each family and backend. Beeline has no routes to them.
var (
	serviceOfNear = []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")}
	serviceOfFar  = []netip.Addr{netip.MustParseAddr("10.96.0.2"), netip.MustParseAddr("fd00:96::2")}
)

const (
	servicePort = 80
	backendPort = 8080
	closedPort  = 9 // of pods and of Services: no server listens
)

// services is an external lab whose nodes have nftables rules that translate ClusterIPs, as kube-proxy's do.
type services struct {
	*external
	near machine // a second pod of here
}

func newServices(t *testing.T, flags ...string) *services {
	s := &services{external: newExternal(t, flags...)}
	p := s.addPod(s.here, "near")
	s.near = machine{"near", p.Netns, p.Addresses}
	for _, n := range s.nodes[:2] {
		s.translate(n)
	}
	return s
}

// translate makes the rules of a node. The cluster tests use the real kube-proxy.
func (s *services) translate(n *node) {
	s.t.Helper()
	var rules strings.Builder
	rules.WriteString("table inet services {\n")
	for _, hook := range []string{"prerouting", "output"} {
		fmt.Fprintf(&rules, "chain %s { type nat hook %s priority -100;\n", hook, hook)
		for i, family := range []string{"ip", "ip6"} {
			for _, b := range []struct {
				service netip.Addr
				backend netip.Addr
			}{{serviceOfNear[i], s.near.addresses[i]}, {serviceOfFar[i], s.far.addresses[i]}} {
				for _, protocol := range []string{"tcp", "udp"} {
					for service, backend := range map[int]int{servicePort: backendPort, closedPort: closedPort} {
						fmt.Fprintf(&rules, "%s daddr %s %s dport %d dnat %s to %s\n",
							family, b.service, protocol, service, family, netip.AddrPortFrom(b.backend, uint16(backend)))
					}
				}
			}
		}
		rules.WriteString("}\n")
	}
	// As kube-proxy: packets in state invalid are dropped.
	rules.WriteString("chain forward { type filter hook forward priority 0; ct state invalid drop\n }\n}\n")
	if out, err := n.Output(s.t.Context(), "nft", rules.String()); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	// The node's own packets need a route before they are translated.
	err := n.Netlink(func(h *netlink.Handle) error {
		uplink, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		for _, a := range slices.Concat(serviceOfNear, serviceOfFar) {
			route := netlink.Route{LinkIndex: uplink.Attrs().Index, Dst: testbed.IPNet(netip.PrefixFrom(a, a.BitLen()))}
			if err := h.RouteAdd(&route); err != nil {
				return fmt.Errorf("route to %s: %w", a, err)
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// tracked counts the TCP connections from a to b in the conntrack table of the node's kernel.
func (s *services) tracked(n *node, a, b netip.Addr) (count int) {
	s.t.Helper()
	family := netlink.InetFamily(unix.AF_INET6)
	if a.Is4() {
		family = unix.AF_INET
	}
	err := n.Do(func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		for _, f := range flows {
			if f.Forward.Protocol == unix.IPPROTO_TCP && f.Forward.SrcIP.Equal(a.AsSlice()) && f.Forward.DstIP.Equal(b.AsSlice()) {
				count++
			}
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return count
}

func TestServices(t *testing.T) {
	for _, flags := range [][]string{{"--services=kube-proxy"}, {"--services=kube-proxy", "--masquerade=false"}, {"--routing=kernel", "--services=none"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			s := newServices(t, flags...)
			for i := range serviceOfNear {
				for _, to := range []struct {
					service netip.Addr
					backend machine
				}{{serviceOfNear[i], s.near}, {serviceOfFar[i], s.far}} {
					for _, client := range []machine{s.pod, s.node} {
						s.expectService(client, to.backend, to.service)
					}
				}
				// A backend as client of another Service, and direct connections without a Service.
				s.expectService(s.far, s.near, serviceOfNear[i])
				s.expectDirect(s.pod, s.far, s.far.addresses[i])
				s.expectDirect(s.pod, s.near, s.near.addresses[i])
				s.expectFragments(s.pod, s.far, i)
				s.expectRejection(s.pod, s.far, i)
			}
		})
	}
}

// The kernel of neither node tracks direct connections. (With kube-proxy it tracks fragments.)
func TestServicesLeaveTheRestStraight(t *testing.T) {
	s := newServices(t, "--services=kube-proxy")
	for i := range serviceOfFar {
		s.expectService(s.pod, s.far, serviceOfFar[i])
		if n := s.tracked(s.here, s.pod.addresses[i], serviceOfFar[i]); n == 0 {
			t.Errorf("a connection to %s is not tracked", serviceOfFar[i])
		}
		s.expectDirect(s.pod, s.far, s.far.addresses[i])
		s.expectDirect(s.pod, s.near, s.near.addresses[i])
		for _, backend := range []machine{s.far, s.near} {
			for _, n := range s.nodes[:2] {
				if n := s.tracked(n, s.pod.addresses[i], backend.addresses[i]); n > 0 {
					t.Errorf("%d connections from %s to %s are tracked", n, s.pod.name, backend.name)
				}
			}
		}
	}
}

// A client can use one source port for a Service and then for the Service's backend: two connections.
func TestServiceAndBackendFromOnePort(t *testing.T) {
	const clientPort = 50000
	s := newServices(t, "--services=kube-proxy")
	for i := range serviceOfFar {
		for _, to := range []struct {
			service netip.Addr
			backend machine
		}{{serviceOfFar[i], s.far}, {serviceOfNear[i], s.near}} {
			for name, exchange := range map[string]func(client, backend testbed.Netns, from, to netip.AddrPort) error{
				"TCP": exchangeTCP, "UDP": exchangeUDP,
			} {
				from := netip.AddrPortFrom(s.pod.addresses[i], clientPort)
				for _, to := range []struct {
					address netip.AddrPort
					backend machine
				}{
					{netip.AddrPortFrom(to.service, servicePort), to.backend},
					{netip.AddrPortFrom(to.backend.addresses[i], backendPort), to.backend},
					{netip.AddrPortFrom(to.service, servicePort), to.backend},
				} {
					if err := exchange(s.pod.netns, to.backend.netns, from, to.address); err != nil {
						t.Fatalf("%s from %s to %s at %s: %v", name, from, to.address, to.backend.name, err)
					}
				}
			}
		}
	}
}

// expectService exchanges a megabyte with the backend through the ClusterIP over TCP, in both directions at once, and
// datagrams over UDP. Connections to a closed port must be refused.
func (s *services) expectService(client, backend machine, service netip.Addr) {
	s.t.Helper()
	s.expectExchange(client, backend, netip.AddrPortFrom(service, servicePort))
	for _, network := range []string{"tcp", "udp"} {
		if err := refusal(client.netns, network, netip.AddrPortFrom(service, closedPort)); !errors.Is(err, unix.ECONNREFUSED) {
			s.t.Errorf("%s to a closed port of %s over %s: %v, want ECONNREFUSED", client.name, service, network, err)
		}
	}
}

// expectDirect exchanges data with the backend directly.
func (s *services) expectDirect(client, backend machine, address netip.Addr) {
	s.t.Helper()
	s.expectExchange(client, backend, netip.AddrPortFrom(address, backendPort))
}

func (s *services) expectExchange(client, backend machine, to netip.AddrPort) {
	s.t.Helper()
	if err := exchangeTCP(client.netns, backend.netns, netip.AddrPort{}, to); err != nil {
		s.t.Fatalf("%s over TCP to %s at %s: %v", client.name, to, backend.name, err)
	}
	if err := exchangeUDP(client.netns, backend.netns, netip.AddrPort{}, to); err != nil {
		s.t.Fatalf("%s over UDP to %s at %s: %v", client.name, to, backend.name, err)
	}
}

// exchangeTCP sends a megabyte to a server on backendPort, which sends it back. The client closes with RST, so that it
// can reuse the port. The zero from is any.
func exchangeTCP(client, backend testbed.Netns, from, to netip.AddrPort) error {
	var listener net.Listener
	err := backend.Do(func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", backendPort))
		return err
	})
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	return client.Do(func() error {
		dialer := net.Dialer{Timeout: patience}
		if from.IsValid() {
			dialer.LocalAddr = net.TCPAddrFromAddrPort(from)
		}
		conn, err := dialer.Dial("tcp", to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.SetDeadline(time.Now().Add(patience))
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		go func() { _, _ = conn.Write(sent) }()
		got := make([]byte, len(sent))
		if n, err := io.ReadFull(conn, got); err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", n, len(sent), err)
		}
		if !bytes.Equal(got, sent) {
			return errors.New("the reply has other bytes")
		}
		return nil
	})
}

// exchangeUDP sends a datagram and one in fragments to a server on backendPort, which sends them back. The zero from is
// any.
func exchangeUDP(client, backend testbed.Netns, from, to netip.AddrPort) error {
	var server *net.UDPConn
	err := backend.Do(func() (err error) {
		server, err = net.ListenUDP("udp", &net.UDPAddr{Port: backendPort})
		return err
	})
	if err != nil {
		return err
	}
	defer server.Close()
	go echoPackets(server)
	return client.Do(func() error {
		var dialer net.Dialer
		if from.IsValid() {
			dialer.LocalAddr = net.UDPAddrFromAddrPort(from)
		}
		conn, err := dialer.Dial("udp", to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, size := range []int{64, 4000} {
			_ = conn.SetDeadline(time.Now().Add(patience))
			if _, err := conn.Write(make([]byte, size)); err != nil {
				return err
			}
			if n, err := conn.Read(make([]byte, 2*size)); err != nil || n != size {
				return fmt.Errorf("a datagram of %d bytes: reply of %d: %w", size, n, err)
			}
		}
		return nil
	})
}

// refusal returns the error of a request to a closed port.
func refusal(client testbed.Netns, network string, to netip.AddrPort) error {
	return client.Do(func() error {
		conn, err := net.DialTimeout(network, to.String(), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte("ping")); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1))
		return err
	})
}

// TestServicesThroughTunnels translates connections with rules like kube-proxy's and sends them through tunnels: from a
// pod and the node to a Service's remote backend, and from the external machine through a node port, which the backend
// sees as the node.
func TestServicesThroughTunnels(t *testing.T) {
	for _, flags := range [][]string{{"--services=kube-proxy"}, {"--routing=kernel"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			newServices(t, append(flags, "--tunnel=vxlan")...).expectThroughTunnels()
		})
	}
}

// expectThroughTunnels checks all kinds of connections to Services that the stack translates.
func (s *services) expectThroughTunnels() {
	s.t.Helper()
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
			s.t.Errorf("external machine to the node port at %s: %v", to, err)
		}
		seen, err := externalUDPAt(s.outside, s.far, to)
		if err != nil || seen != s.node.addresses[i] {
			s.t.Errorf("far sees %s through the node port, want %s (error %v)", seen, s.node.addresses[i], err)
		}
	}
	s.wantNoDropsOn(s.nodes[:2])
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
		seen, _, err = externalRequest(socket, len(capture.Marker))
		return err
	})
	return seen, err
}
