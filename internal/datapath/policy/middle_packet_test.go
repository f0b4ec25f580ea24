package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// A packet without SYN and without a conntrack entry is evaluated with its sender as the initiator, whatever its
// ports; so is SYN|ACK. Unless a socket says otherwise, what the other end may initiate does not matter.
func TestPolicyMiddleByItsSender(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	const some = policy.Ports(20)
	for _, port := range []uint16{80, 50000, 50051} {
		p.Tables.Ports[policy.PortPrefix{Ports: some, Bits: 24, Protocol: fixtures.ProtoTCP, Port: port}] = harness.ThePolicy
	}
	harness.EachFamily(t, func(t *testing.T, family int) {
		for _, ports := range [][2]uint16{{1500, 80}, {40000, 50000}, {40000, 80}, {80, 50051}, {1500, 50051}} {
			t.Run(fmt.Sprint(ports), func(t *testing.T) {
				// PodA is the server, then the client.
				server, client := harness.End{Member: fixtures.PodA, Port: ports[1]}.At(family), harness.End{Member: fixtures.PodB, Port: ports[0]}.At(family)
				comes := func(from, to netip.AddrPort, flags byte) harness.Run {
					return harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), from, to, flags))
				}
				leaves := func(from, to netip.AddrPort, flags byte) harness.Run {
					return harness.PodSends(harness.SegmentOf(fixtures.FromPod(), from, to, flags))
				}
				p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: some}))
				p.ClearVerdicts(t)
				for _, flags := range []byte{fixtures.TcpPSH | fixtures.TcpACK, fixtures.TcpSYN | fixtures.TcpACK, fixtures.TcpFIN | fixtures.TcpACK, fixtures.TcpRST | fixtures.TcpACK, 0} {
					p.Denies(t, "from the pod: what it may not initiate", leaves(server, client, flags), harness.NoEgress)
				}
				p.Allows(t, "to the pod: data", comes(client, server, fixtures.TcpACK))
				p.Allows(t, "to the pod: data back", leaves(server, client, fixtures.TcpACK))
				p.Denies(t, "to the pod: SYN back", leaves(server, client, fixtures.TcpSYN), harness.NoEgress)

				server, client = harness.End{Member: fixtures.PodB, Port: ports[1]}.At(family), harness.End{Member: fixtures.PodA, Port: ports[0]}.At(family)
				p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{{Set: harness.RulesOf2, Identity: harness.IdB}: some})
				p.ClearVerdicts(t)
				for _, flags := range []byte{fixtures.TcpPSH | fixtures.TcpACK, fixtures.TcpSYN | fixtures.TcpACK, fixtures.TcpFIN | fixtures.TcpACK, fixtures.TcpRST | fixtures.TcpACK, 0} {
					p.Denies(t, "to the pod: what others may not initiate", comes(server, client, flags), harness.NoIngress)
				}
				p.Allows(t, "from the pod: data", leaves(client, server, fixtures.TcpACK))
				p.Allows(t, "from the pod: data back", comes(server, client, fixtures.TcpACK))
				p.Denies(t, "from the pod: SYN back", comes(server, client, fixtures.TcpSYN), harness.NoIngress)

				// With isolation in one direction only, the other one is unrestricted, and this one stays restricted.
				p.Egress(t, map[policy.Identity]policy.Ports{})
				p.ClearVerdicts(t)
				p.Denies(t, "from a pod isolated for egress only", leaves(client, server, fixtures.TcpPSH|fixtures.TcpACK), harness.NoEgress)
				p.Ingress(t, map[policy.Identity]policy.Ports{})
				p.ClearVerdicts(t)
				p.Denies(t, "to a pod isolated for ingress only", comes(server, client, fixtures.TcpPSH|fixtures.TcpACK), harness.NoIngress)
			})
		}
	})
}

// A connection whose start was not seen continues while the next sender may initiate it.
func TestPolicyUnseenAgain(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	sets := policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}
	both := map[policy.Peer]policy.Ports{{Set: harness.Rules, Identity: harness.IdB}: harness.PortsEvery, {Set: harness.RulesOf2, Identity: harness.IdB}: harness.PortsEvery}
	harness.EachFamily(t, func(t *testing.T, family int) {
		server, client := harness.End{Member: fixtures.PodA, Port: 50051}.At(family), harness.End{Member: fixtures.PodB, Port: 1500}.At(family)
		data := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK))
		back := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpACK))
		p.Govern(t, fixtures.PodA, sets, both)
		p.ClearVerdicts(t)
		p.Allows(t, "data", data)
		p.Govern(t, fixtures.PodA, sets, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery}))
		p.Allows(t, "data, which only its sender may open now", data)
		p.Allows(t, "data back", back)
		p.Govern(t, fixtures.PodA, sets, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery}))
		p.Denies(t, "data, which its sender may not open now", data, harness.NoIngress)
		p.Allows(t, "data back, which its sender may open now", back)
		p.Allows(t, "data of that connection", data)
		p.Govern(t, fixtures.PodA, sets, map[policy.Peer]policy.Ports{})
		p.Denies(t, "data that neither end may initiate", data, harness.NoIngress)
		p.Denies(t, "data back that neither end may initiate", back, harness.NoEgress)
	})
}

// ICMP errors about SCTP packets belong to their connections as others do.
func TestPolicyErrorsAboutSCTP(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		kind, code := byte(3), byte(2) // protocol unreachable: a host without SCTP
		if family == 6 {
			kind, code = 1, 4
		}
		client, server := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 80}.At(family)
		about := func(quoted fixtures.Packet) harness.Run {
			return harness.WireBrings(fixtures.Quoting(fixtures.FromWire(), server.Addr(), quoted.Src, kind, code, 0, quoted, 500))
		}
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsSCTP}))
		p.Allows(t, "INIT", harness.PodSends(harness.Sctp(fixtures.FromPod(), client, server)))
		p.Allows(t, "an error about it", about(harness.Sctp(fixtures.Eth(fwd.MAC{}, fwd.MAC{}), client, server)))
		p.Denies(t, "an error about another one", about(harness.Sctp(fixtures.Eth(fwd.MAC{}, fwd.MAC{}), client, harness.End{Member: fixtures.PodB, Port: 81}.At(family))), harness.NoIngress)
	})
}
