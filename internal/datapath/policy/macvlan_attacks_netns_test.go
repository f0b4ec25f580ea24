package policy_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/policy"
)

// A pod whose egress policies restrict sends nothing to link-local addresses of other hosts, nor multicast.
func TestPolicyMacvlanLink(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true, Policy: true}})
	m1 := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0])
	obey(n.A, t, map[*netlab.Pod]policy.Sets{m1: {Egress: harness.RulesOf2}}, nil)
	host := fixtures.LinkLocal(fixtures.Router)
	var server net.PacketConn
	n.External.Do(t, func() (err error) {
		server, err = net.ListenPacket("udp6", "[::]:7")
		return err
	})
	defer server.Close()
	m1.Do(t, func() error {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet6{Addr: m1.V6.As16()}); err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("leaked"), 0, &unix.SockaddrInet6{Port: 7, Addr: host.As16(), ZoneId: uint32(dev.Index)})
	})
	own := fixtures.Eth(m1.Mac, fixtures.Router)
	group := fwd.MAC{1, 0, 0x5e, 0, 0, 18}
	m1.Send(t, "eth0",
		own.Ipv6(m1.V6, fixtures.Addr("ff02::1")).Udp(1, 7).Payload("leaked").Bytes(),
		own.Macs(m1.Mac, group).Ipv4(n.B.V4, fixtures.Addr("224.0.0.18")).Udp(1, 7).Payload("leaked").Bytes(),
		own.Macs(m1.Mac, group).Ipv4(m1.V4, fixtures.Addr("224.0.0.18")).Udp(1, 7).Payload("leaked").Bytes())
	n.AwaitDropped(t, n.A, map[string]uint64{"from_macvlan egress_policy": 2, "from_macvlan spoofed_source": 1, "from_macvlan invalid_destination": 1})
	netlab.ExpectNothing(t, server.(*net.UDPConn))
}

// Where kube-proxy or the network's configuration has the kernel stack forward all to a pod, policies of the pod are applied before the
// pod has it.
func TestPolicyMacvlanThroughStack(t *testing.T) {
	for name, test := range map[string]struct {
		cfg   config.Datapath
		stack bool
	}{
		"kube-proxy":                    {config.Datapath{EBPFRouting: true, Macvlan: true, Policy: true, StackServices: true}, false},
		"pod of a stack":                {config.Datapath{EBPFRouting: true, Macvlan: true, Policy: true}, true},
		"pod of a stack, with Services": {config.Datapath{EBPFRouting: true, Macvlan: true, Policy: true, Services: true, Masquerade: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := netlab.NewNetwork(t, netlab.Options{Cfg: test.cfg})
			m1, open := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0]), n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
			if test.stack {
				endpoints := n.A.Endpoints()
				for _, a := range []netip.Addr{m1.V4, m1.V6, open.V4, open.V6} {
					e := endpoints[a]
					e.ThroughStack = true
					endpoints[a] = e
				}
				if _, err := n.A.D.Endpoints.Sync(endpoints); err != nil {
					t.Fatal(err)
				}
			}
			obey(n.A, t, map[*netlab.Pod]policy.Sets{m1: {Ingress: harness.RulesHere}}, nil)
			for _, family := range fixtures.Families {
				t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
					netlab.Carries(t, *n.External, open.Netns, n.ExternalOnSwitch(family), open.Addr(family))
					netlab.Carries(t, open.Netns, *n.External, open.Addr(family), n.ExternalOnSwitch(family))
					server := m1.ListenUDP(t, m1.Addr(family))
					for _, from := range []netlab.Netns{*n.External, n.B1.Netns, open.Netns} {
						fixtures.Write(t, from.Dial(t, "udp", m1.Addr(family)), "denied")
					}
					own := fixtures.Eth(fixtures.Router, m1.Mac).Ip(n.ExternalOnSwitch(family), m1.Addr(family)).Udp(1, netlab.EchoPort)
					n.External.Send(t, "eth0", own.Payload("denied").Bytes(), own.Ttl(1).Payload("denied").Bytes())
					netlab.ExpectNothing(t, server)
				})
			}
		})
	}
}
