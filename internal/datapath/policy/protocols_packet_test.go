package policy_test

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Later fragments follow the first; without it, only rules without ports match.
func TestPolicyFragments(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		pieces := func(frame fixtures.Packet, port uint16) (first, last fixtures.Packet) {
			whole := harness.Datagram(frame, harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: port}.At(family)).Payload("sixteen bytes at least, and more")
			return whole.Fragment(0, true), whole.Fragment(16, false)
		}
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		first, last := pieces(fixtures.FromWire(), 53)
		p.Denies(t, "the first piece", harness.WireBrings(first), harness.NoIngress)
		p.Denies(t, "the last piece of what was denied", harness.WireBrings(last), harness.NoIngress)
		p.ClearFragments(t)
		p.Denies(t, "the last piece of what is unknown", harness.WireBrings(last), harness.NoPiece)
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP})
		p.Allows(t, "an unknown piece of a protocol that is allowed whole", harness.WireBrings(last))
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsOf53})
		p.ClearVerdicts(t)
		p.Denies(t, "an unknown piece of a port that is allowed", harness.WireBrings(last), harness.NoPiece)
		p.Allows(t, "the first piece of a port that is allowed", harness.WireBrings(first))
		p.Allows(t, "the last piece of that", harness.WireBrings(last))
		p.Allows(t, "a reply in pieces", harness.PodSends(harness.Datagram(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: 53}.At(family), harness.End{Member: fixtures.PodB, Port: 40000}.At(family)).Payload("sixteen bytes at least, and more").Fragment(0, true)))
	})
}

// ICMP errors belong to the connection that they quote; otherwise they are evaluated as a protocol without ports.
func TestPolicyErrors(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	hop := fixtures.Member{V4: fixtures.Addr("172.30.0.77"), V6: fixtures.Addr("fd00:172:30::77")}
	harness.EachFamily(t, func(t *testing.T, family int) {
		kind, code := byte(3), byte(3)
		if family == 6 {
			kind, code = 1, 4
		}
		none := fixtures.Eth(fwd.MAC{}, fwd.MAC{})
		client, other := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 53}.At(family)
		about := func(frame fixtures.Packet, who netip.Addr, quoted fixtures.Packet) fixtures.Packet {
			return fixtures.Quoting(frame, who, quoted.Src, kind, code, 0, quoted, 500)
		}
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsOf53}))
		sent := harness.Datagram(none, client, other)
		p.Denies(t, "about what the pod may not send", harness.WireBrings(about(fixtures.FromWire(), hop.Addr(family), harness.Datagram(none, client, harness.End{Member: fixtures.PodB, Port: 54}.At(family)))), harness.NoIngress)
		p.Allows(t, "the packet", harness.PodSends(harness.Datagram(fixtures.FromPod(), client, other)))
		p.Allows(t, "of its receiver", harness.WireBrings(about(fixtures.FromWire(), fixtures.PodB.Addr(family), sent)))
		p.Allows(t, "of a router", harness.WireBrings(about(fixtures.FromWire(), hop.Addr(family), sent)))
		mine := about(fixtures.FromWire(), hop.Addr(family), harness.Datagram(none, harness.End{Member: fixtures.PodC, Port: 40000}.At(family), other))
		mine.Dst = fixtures.PodA.Addr(family)
		p.Denies(t, "about another pod's packet", harness.WireBrings(mine), harness.NoIngress)
		p.Allows(t, "a reply", harness.WireBrings(harness.Datagram(fixtures.FromWire(), other, client)))
		p.Allows(t, "about the reply", harness.PodSends(about(fixtures.FromPod(), fixtures.PodA.Addr(family), harness.Datagram(none, other, client))))
		p.Denies(t, "about an unknown packet", harness.PodSends(about(fixtures.FromPod(), fixtures.PodA.Addr(family), harness.Datagram(none, harness.End{Member: fixtures.PodC, Port: 53}.At(family), client))), harness.NoEgress)

		// A local pod does not send errors for routers.
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsOf53})
		p.Allows(t, "its request", harness.WireBrings(harness.Datagram(fixtures.FromWire(), other, harness.End{Member: fixtures.PodA, Port: 53}.At(family))))
		lie := about(fixtures.FromPod(), fixtures.PodA2.Addr(family), harness.Datagram(none, harness.End{Member: fixtures.PodA, Port: 53}.At(family), other))
		p.Denies(t, "of a pod that has not got it", harness.Pod2Sends(lie), uint32(bpf.DropReasonDROP_FORGED_ERROR))
	})
}

// Protocols without ports are allowed where every protocol is; SCTP has its ports where TCP has them.
func TestPolicyProtocols(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		gre := harness.WireBrings(fixtures.FromWire().Ip(fixtures.PodB.Addr(family), fixtures.PodA.Addr(family)).Raw(47, make([]byte, 12)))
		back := harness.PodSends(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), fixtures.PodB.Addr(family)).Raw(47, make([]byte, 12)))
		ping := harness.WireBrings(harness.EchoOf(fixtures.FromWire(), fixtures.PodB.Addr(family), fixtures.PodA.Addr(family), 9, false))
		init := func(port uint16) harness.Run {
			return harness.WireBrings(harness.Sctp(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: port}.At(family)))
		}
		short := harness.WireBrings(fixtures.FromWire().Ip(fixtures.PodB.Addr(family), fixtures.PodA.Addr(family)).Raw(fixtures.ProtoTCP, []byte{0, 1, 0, 80}))
		for _, ports := range []policy.Ports{harness.PortsTCP80, harness.PortsUDP} {
			p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: ports}))
			p.Denies(t, "another protocol", gre, harness.NoIngress)
			p.Denies(t, "echo", ping, harness.NoIngress)
			p.Denies(t, "SCTP", init(80), harness.NoIngress)
			p.Denies(t, "TCP that is cut off", short, harness.NoIngress)
		}
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsSCTP})
		p.Allows(t, "SCTP, allowed", init(80))
		p.Denies(t, "SCTP to another port", init(81), harness.NoIngress)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery}))
		p.Allows(t, "another protocol, allowed", gre)
		p.Allows(t, "its reply", back)
		p.Allows(t, "echo, allowed", ping)
		p.Allows(t, "its reply", harness.PodSends(harness.EchoOf(fixtures.FromPod(), fixtures.PodA.Addr(family), fixtures.PodB.Addr(family), 9, true)))
	})
}
