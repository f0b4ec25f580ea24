package policy_test

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// The initiator of a translated connection is known from its NAT entry, even if its start was not seen. Replies need
// no rule, and a pod that may not initiate it any more gets none, whatever its ingress rules allow.
func TestPolicyRepliesOfTranslated(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{Services: true})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		pod, frontend, backend := harness.End{Member: fixtures.PodA, Port: 40100}.At(family), harness.FrontendOfPods.At(family), harness.End{Member: fixtures.PodB, Port: 8080}.At(family)
		request, back := transport(fixtures.FromPod(), pod, frontend), transport(fixtures.FromWire(), backend, pod)
		if protocol == fixtures.ProtoTCP {
			request = request.Segment(fixtures.TcpSYN, 1, 1)
		}
		p.Serve(t, frontend, 0, backend)
		p.Govern(t, fixtures.PodA, policy.Sets{}, nil)
		p.Allows(t, name+" before there are policies", harness.PodSends(request))

		p.Ingress(t, map[policy.Identity]policy.Ports{})
		p.ClearVerdicts(t)
		p.Allows(t, name+": a reply", harness.WireBrings(back))
		p.Denies(t, name+": to another port", harness.WireBrings(transport(fixtures.FromWire(), backend, harness.End{Member: fixtures.PodA, Port: 40101}.At(family))), harness.NoIngress)
		if protocol == fixtures.ProtoTCP {
			p.ClearVerdicts(t)
			p.Denies(t, name+": SYN into it", harness.WireBrings(back.Segment(fixtures.TcpSYN, 1, 1)), harness.NoIngress)
		}
		p.Egress(t, map[policy.Identity]policy.Ports{})
		p.ClearVerdicts(t)
		p.Denies(t, name+": a reply to what the pod may not open", harness.WireBrings(back), harness.NoEgress)
		p.Denies(t, name+": what the pod may not open", harness.PodSends(transport(fixtures.FromPod(), pod, frontend)), harness.NoEgress)
		p.Govern(t, fixtures.PodA, policy.Sets{}, nil)
	})
}

// A pod that may not initiate a connection does not keep it by claiming, or not claiming, to be the initiator: a
// server of this node claims that it has accepted it.
func TestPolicySocketProofOfServer(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		server, client := harness.End{Member: fixtures.PodA, Port: 80}.At(family), harness.End{Member: fixtures.PodA2, Port: 40000}.At(family)
		back := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpPSH|fixtures.TcpACK))
		s := newPodSockets(p, t, fixtures.PodA, "blpoda", family)
		p.Govern(t, fixtures.PodA2, policy.Sets{Egress: harness.RulesHere}, map[policy.Peer]policy.Ports{})
		p.ClearVerdicts(t)
		p.Allows(t, "of a server without a socket", back)
		s.accepted(t, server, client)
		p.ClearVerdicts(t)
		p.Denies(t, "of a server that has accepted it", back, harness.NoEgress)
		p.Govern(t, fixtures.PodA2, policy.Sets{Egress: harness.RulesHere}, harness.InSet(harness.RulesHere, map[policy.Identity]policy.Ports{harness.IdA: harness.PortsTCP80}))
		p.ClearVerdicts(t)
		p.Allows(t, "of a server that the client may ask", back)
		if all := p.Entries(t); len(all) != 1 || all[0].Source != client {
			t.Errorf("entries %+v: expected one that %s initiated", all, client)
		}
	})
}

// A server that is isolated in both directions initiates nothing with packets on an accepted connection: both
// directions must allow it, also after changes.
func TestPolicySocketProofOfIsolatedServer(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	allows := func(set policy.Set) map[policy.Peer]policy.Ports {
		return harness.InSet(set, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery})
	}
	nothing := map[policy.Peer]policy.Ports{}
	both := policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}
	harness.EachFamily(t, func(t *testing.T, family int) {
		server, client := harness.End{Member: fixtures.PodA, Port: 8080}.At(family), harness.End{Member: fixtures.PodB, Port: 40001}.At(family)
		from := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpPSH|fixtures.TcpACK))
		back := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpPSH|fixtures.TcpACK))
		newPodSockets(p, t, fixtures.PodA, "blpoda", family).accepted(t, server, client)

		p.Govern(t, fixtures.PodA, both, allows(harness.RulesOf2))
		p.ClearVerdicts(t)
		p.Denies(t, "of a server that may not be reached", back, harness.NoIngress)
		p.Denies(t, "to it", from, harness.NoIngress)

		for what, in := range map[string]harness.Run{"of": back, "to": from} {
			p.Govern(t, fixtures.PodA, policy.Sets{Egress: harness.RulesOf2}, allows(harness.RulesOf2))
			p.ClearVerdicts(t)
			p.Allows(t, "of a server without ingress isolation", back)
			p.Govern(t, fixtures.PodA, both, allows(harness.RulesOf2))
			p.Denies(t, what+" one that may not be reached any more", in, harness.NoIngress)
		}

		// A socket does not make replies of packets that the server may not send any more, until its client
		// continues.
		p.Govern(t, fixtures.PodA, both, allows(harness.Rules))
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules}, nil)
		p.Tables.Policies[policy.Peer{Set: harness.RulesOf2, Identity: harness.IdB}] = harness.PortsEvery
		p.Govern(t, fixtures.PodA, both, nil)
		p.ClearVerdicts(t)
		p.Allows(t, "of a server that both allow", back)
		p.Govern(t, fixtures.PodA, both, allows(harness.Rules))
		p.Denies(t, "of one that may not open it any more", back, harness.NoEgress)
		p.Allows(t, "to it, of its client", from)
		p.Allows(t, "of it, to its client", back)
		p.Govern(t, fixtures.PodA, both, nothing)
		p.Denies(t, "of one that neither allows", back, harness.NoEgress)
		p.Govern(t, fixtures.PodA, policy.Sets{}, nil)
	})
}

// A segment that a server sends to an external client creates a missing NAT entry, as if the server were the
// initiator. The server's socket says that it is not.
func TestPolicySocketProofOfTranslatedServer(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{Services: true})
	allowed := map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsEvery}
	harness.EachFamily(t, func(t *testing.T, family int) {
		server, client := harness.End{Member: fixtures.PodA, Port: 8080}.At(family), netip.AddrPortFrom(fixtures.External.Addr(family), 41000)
		p.ForgetNAT(t)
		p.Govern(t, fixtures.PodA, policy.Sets{}, nil)
		var got harness.Outcome
		p.Netns.Do(func() {
			var err error
			if got, err = p.Run(harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpPSH|fixtures.TcpACK))); err != nil {
				t.Fatal(err)
			}
		})
		masqueraded := fixtures.SourceOf(family, got.Out)
		if masqueraded.Addr() != fixtures.NodeA.Addr(family) {
			t.Fatalf("the segment of the server leaves from %s", masqueraded)
		}
		from := harness.WireBrings(harness.SegmentOf(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), client, masqueraded, fixtures.TcpPSH|fixtures.TcpACK))

		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules}, map[policy.Peer]policy.Ports{})
		p.ClearVerdicts(t)
		p.Allows(t, "to a pod without a socket", from)
		newPodSockets(p, t, fixtures.PodA, "blpoda", family).accepted(t, server, client)
		p.ClearVerdicts(t)
		p.Denies(t, "to a server that may not be reached", from, harness.NoIngress)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules}, harness.InSet(harness.Rules, allowed))
		p.ClearVerdicts(t)
		p.Allows(t, "to a server that may be reached", from)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules}, map[policy.Peer]policy.Ports{})
		p.Denies(t, "to one that may not be reached any more", from, harness.NoIngress)

		// The entry still says that the pod is the initiator: a listening socket does not bypass egress rules.
		p.Govern(t, fixtures.PodA, policy.Sets{Egress: harness.Rules}, map[policy.Peer]policy.Ports{})
		p.ClearVerdicts(t)
		p.Denies(t, "to a pod that may not open it", from, harness.NoEgress)
		p.Govern(t, fixtures.PodA, policy.Sets{}, nil)
	})
}
