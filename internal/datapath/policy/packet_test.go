package policy_test

import (
	"fmt"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Ingress rules allow by identity, protocol and port. The first entry for an identity decides.
func TestPolicyIngress(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		from := func(who fixtures.Member, to uint16) harness.Run {
			return harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), harness.End{Member: who, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: to}.At(family), fixtures.TcpSYN))
		}
		udp := func(who fixtures.Member, to uint16) harness.Run {
			return harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: who, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: to}.At(family)))
		}
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		p.Allows(t, "the port", from(fixtures.PodB, 80))
		p.Denies(t, "another port", from(fixtures.PodB, 81), harness.NoIngress)
		p.Denies(t, "another protocol", udp(fixtures.PodB, 80), harness.NoIngress)
		p.Denies(t, "another pod", from(fixtures.PodC, 80), harness.NoIngress)
		p.Denies(t, "an external client", from(fixtures.External, 80), harness.NoIngress)
		p.Denies(t, "another node", from(fixtures.NodeB, 80), harness.NoIngress)

		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsRange, harness.IdExternal: harness.PortsUDP})
		for port := uint16(7998); port < 8010; port++ {
			if port >= 8000 && port < 8008 {
				p.Allows(t, fmt.Sprint("port ", port), from(fixtures.PodB, port))
			} else {
				p.Denies(t, fmt.Sprint("port ", port), from(fixtures.PodB, port), harness.NoIngress)
			}
		}
		p.Allows(t, "any port of a protocol", udp(fixtures.External, 9))
		p.Denies(t, "another protocol from there", from(fixtures.External, 9), harness.NoIngress)

		p.Ingress(t, map[policy.Identity]policy.Ports{policy.IdentityPod: harness.PortsEvery, harness.IdB: 0})
		p.Denies(t, "nothing for this one, before the entry of all pods", from(fixtures.PodB, 80), harness.NoIngress)
		p.Denies(t, "not a pod", from(fixtures.External, 80), harness.NoIngress)
		p.Ingress(t, map[policy.Identity]policy.Ports{policy.IdentityUnknown: harness.PortsEvery})
		p.Allows(t, "all", from(fixtures.External, 80))
		p.Allows(t, "all, a pod", from(fixtures.PodB, 80))
		p.Allows(t, "all, an unknown identity", from(fixtures.NodeB, 80))
	})
}

// Egress rules allow by identity, protocol and port, wherever the peer is.
func TestPolicyEgress(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		to := func(peer fixtures.Member, port uint16) harness.Run {
			return harness.PodSends(harness.SegmentOf(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: peer, Port: port}.At(family), fixtures.TcpSYN))
		}
		p.Egress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80, harness.IdA2: harness.PortsTCP80, harness.IdExternal: harness.PortsEvery})
		for name, peer := range map[string]fixtures.Member{"a pod of another node": fixtures.PodB, "a pod behind a tunnel": fixtures.PodT, "a local pod": fixtures.PodA2} {
			p.Allows(t, name, to(peer, 80))
			p.Denies(t, name+", another port", to(peer, 443), harness.NoEgress)
		}
		p.Allows(t, "an external client", to(fixtures.External, 443))
		p.Denies(t, "a pod without an entry", to(fixtures.PodC, 80), harness.NoEgress)
		p.Denies(t, "another node", to(fixtures.NodeB, 80), harness.NoEgress)
		p.Denies(t, "an address that no pod has", to(fixtures.NoPod, 80), harness.NoEgress)
		p.Allows(t, "its own node", to(fixtures.NodeA, 22))
		p.Allows(t, "another pod's packets", harness.Pod2Sends(harness.SegmentOf(fixtures.Eth(fixtures.PodA2.Mac, fixtures.PodA2.Gateway), harness.End{Member: fixtures.PodA2, Port: 40000}.At(family), harness.End{Member: fixtures.PodC, Port: 80}.At(family), fixtures.TcpSYN)))
	})
}

// A pod whose policies are unknown is connected to its own node only.
func TestPolicyClosed(t *testing.T) {
	for _, routing := range []bool{true, false} {
		p := harness.NewPolicy(t, config.Datapath{EBPFRouting: routing})
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: policy.DenyAll, Egress: policy.DenyAll}, nil)
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			to := func(peer fixtures.Member) harness.Run {
				return harness.PodSends(transport(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), peer.Addr(family))))
			}
			from := func(who fixtures.Member) harness.Run {
				return harness.StackDelivers(transport(fixtures.ToPod().Ip(who.Addr(family), fixtures.PodA.Addr(family))))
			}
			for peer, m := range map[string]fixtures.Member{"a local pod": fixtures.PodA2, "a remote pod": fixtures.PodB, "an external client": fixtures.External, "another node": fixtures.NodeB} {
				p.Denies(t, name+" to "+peer, to(m), harness.OutClosed)
				p.Denies(t, name+" from "+peer, forwarded(from(m)), harness.InClosed)
			}
			p.Denies(t, name+" from a forged node address", forwarded(from(fixtures.NodeA)), harness.InClosed)
			p.Allows(t, name+" to its node", to(fixtures.NodeA))
			itself := from(fixtures.NodeB)
			itself.Ingress = itself.Device
			p.Allows(t, name+" from itself, with another address", itself)
			p.Allows(t, name+" from its node", from(fixtures.NodeA))
		})
		discovery := fixtures.FromPod().Ipv6(fixtures.PodA.V6, fixtures.Addr("ff02::1:ff00:1")).Ttl(255).Icmp(135, 0)
		p.Allows(t, "neighbour discovery", harness.PodSends(discovery))
		p.Allows(t, "neighbour discovery of its node", harness.StackDelivers(fixtures.ToPod().Ipv6(fixtures.Addr("fe80::1"), fixtures.PodA.V6).Ttl(255).Icmp(136, 0)))
	}
}

// Policies apply to packets through a tunnel as to packets on the wire.
func TestPolicyTunnel(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Egress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		p.Allows(t, "out", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodT, Port: 80}.At(family), fixtures.TcpSYN)))
		p.Denies(t, "out, denied", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodT6, Port: 80}.At(family), fixtures.TcpSYN)), harness.NoEgress)
	})
}
