package policy_test

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Answers need no rule, in either direction, and nothing that only looks like one gets in.
func TestPolicyAnswers(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		pod, peer := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 53}.At(family)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery}))
		asks, answer := harness.PodSends(harness.Datagram(fixtures.FromPod(), pod, peer)), harness.WireBrings(harness.Datagram(fixtures.FromWire(), peer, pod))
		p.Denies(t, "an answer that nobody has asked for", answer, harness.NoIngress)
		p.Allows(t, "the question", asks)
		p.Allows(t, "its answer", answer)
		p.Allows(t, "another answer", answer)
		p.Denies(t, "from another port", harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 54}.At(family), pod)), harness.NoIngress)
		p.Denies(t, "to another port", harness.WireBrings(harness.Datagram(fixtures.FromWire(), peer, harness.End{Member: fixtures.PodA, Port: 40001}.At(family))), harness.NoIngress)
		p.Denies(t, "from somebody else", harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodC, Port: 53}.At(family), pod)), harness.NoIngress)

		peer = harness.End{Member: fixtures.PodB, Port: 80}.At(family)
		p.Denies(t, "TCP opened with the answer's ports", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpSYN)), harness.NoIngress)
		p.Allows(t, "SYN", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), pod, peer, fixtures.TcpSYN)))
		p.Allows(t, "SYN, ACK", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpSYN|fixtures.TcpACK)))
		p.Allows(t, "ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), pod, peer, fixtures.TcpACK)))
		for range 3 {
			p.Allows(t, "data", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), pod, peer, fixtures.TcpACK|fixtures.TcpPSH)))
			p.Allows(t, "data back", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpACK|fixtures.TcpPSH)))
		}
		p.Denies(t, "SYN back", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpSYN)), harness.NoIngress)

		p.Allows(t, "echo", harness.PodSends(harness.EchoOf(fixtures.FromPod(), pod.Addr(), peer.Addr(), 5, false)))
		p.Allows(t, "its reply", harness.WireBrings(harness.EchoOf(fixtures.FromWire(), peer.Addr(), pod.Addr(), 5, true)))
		p.Denies(t, "another reply", harness.WireBrings(harness.EchoOf(fixtures.FromWire(), peer.Addr(), pod.Addr(), 6, true)), harness.NoIngress)
		p.Denies(t, "echo back", harness.WireBrings(harness.EchoOf(fixtures.FromWire(), peer.Addr(), pod.Addr(), 5, false)), harness.NoIngress)
	})
}

// Both ends of a connection within the node are judged at once, and either may refuse.
func TestPolicyWithinNode(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		from, to := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodA2, Port: 80}.At(family)
		syn, answer := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), from, to, fixtures.TcpSYN)), harness.Pod2Sends(harness.SegmentOf(fixtures.FromPod(), to, from, fixtures.TcpSYN|fixtures.TcpACK))
		data := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), from, to, fixtures.TcpACK))
		p.Govern(t, fixtures.PodA, policy.Sets{Egress: harness.Rules}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdA2: harness.PortsTCP80}))
		p.Govern(t, fixtures.PodA2, policy.Sets{Ingress: harness.RulesOf2, Egress: policy.DenyAll}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdA: 0}))
		p.Denies(t, "the receiver", syn, harness.NoIngress)
		p.Govern(t, fixtures.PodA2, policy.Sets{Ingress: harness.RulesOf2, Egress: policy.DenyAll}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdA: harness.PortsTCP80}))
		p.Allows(t, "both", syn)
		p.Allows(t, "the answer", answer)
		p.Allows(t, "data", data)
		p.Denies(t, "what the closed end opens", harness.Pod2Sends(harness.Datagram(fixtures.FromPod(), to, harness.End{Member: fixtures.PodA, Port: 53}.At(family))), harness.OutClosed)
		if all := p.Entries(t); len(all) != 1+(family-4)/2 || all[len(all)-1].Egress != harness.ThePolicy || all[len(all)-1].Ingress != harness.ThePolicy {
			t.Errorf("sessions %+v", all)
		}
		p.Egress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		p.Denies(t, "the sender", data, harness.NoEgress)
		p.Denies(t, "the sender's answer", harness.Pod2Sends(harness.SegmentOf(fixtures.FromPod(), to, from, fixtures.TcpACK)), harness.NoEgress)
	})
}

// What is no longer allowed stops with its next packet, whatever the permit said; what still is goes on.
func TestPolicyRevokes(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		syn := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN))
		data := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK))
		back := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpACK))
		open := func() {
			t.Helper()
			for what, in := range map[string]harness.Run{"data": data, "data again": data, "back": back, "back again": back} {
				p.Allows(t, what, in)
			}
		}
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		p.Allows(t, "SYN", syn)
		open()
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80, harness.IdWorld: harness.PortsTCP80})
		open()
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdWorld: harness.PortsTCP80})
		for range 3 {
			p.Denies(t, "data, forbidden", data, harness.NoIngress)
			p.Denies(t, "data back, forbidden", back, harness.NoIngress)
		}
		p.Denies(t, "SYN, forbidden", syn, harness.NoIngress)
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		open()

		// A connection that began when no policy was there, and of which no socket tells: who sends has opened it.
		delete(p.Tables.Pods, fixtures.PodA.V4)
		delete(p.Tables.Pods, fixtures.PodA.V6)
		p.Sync(t)
		p.Forget(t)
		open()
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdWorld: harness.PortsTCP80})
		p.Denies(t, "from before the policy", data, harness.NoIngress)

		// UDP: what its receiver sends does not turn it round.
		client, server = harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 53}.At(family)
		query := harness.WireBrings(harness.Datagram(fixtures.FromWire(), client, server))
		reply := harness.PodSends(harness.Datagram(fixtures.FromPod(), server, client))
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP})
		p.Allows(t, "query", query)
		p.Allows(t, "reply", reply)
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdWorld: harness.PortsTCP80})
		p.Denies(t, "reply, forbidden", reply, harness.NoIngress)
		p.Denies(t, "query, forbidden", query, harness.NoIngress)
	})
}

// A session that others have pushed out is asked about again: what is allowed goes on, what is not does not.
func TestPolicyAfterEviction(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		for _, c := range []struct {
			name           string
			client, server uint16
		}{{"a server's port", 40000, 80}, {"no server's port", 81, 80}} {
			client, server := harness.End{Member: fixtures.PodB, Port: c.client}.At(family), harness.End{Member: fixtures.PodA, Port: c.server}.At(family)
			data := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK))
			back := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpACK))
			last := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpRST|fixtures.TcpACK))
			allowed := map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80}
			p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, allowed))
			p.Forget(t)
			p.Denies(t, c.name+": data back, first", back, harness.NoEgress)
			p.Allows(t, c.name+": data", data)
			p.Allows(t, c.name+": data again", data)
			p.Allows(t, c.name+": data back", back)
			p.Forget(t)
			p.Denies(t, c.name+": a reset of who may not open it", last, harness.NoEgress)
			p.Allows(t, c.name+": a reset", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpRST|fixtures.TcpACK)))
			if n := len(p.Entries(t)); n != 0 {
				t.Errorf("%s: %d sessions begin with a reset", c.name, n)
			}
			p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{}))
			p.Forget(t)
			p.Denies(t, c.name+": data, denied", data, harness.NoIngress)
			p.Denies(t, c.name+": data back, denied", back, harness.NoEgress)
		}
		// Of UDP every packet opens.
		query := harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 53}.At(family)))
		reply := harness.PodSends(harness.Datagram(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: 53}.At(family), harness.End{Member: fixtures.PodB, Port: 40000}.At(family)))
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP}))
		p.Forget(t)
		p.Denies(t, "a reply to nothing", reply, harness.NoEgress)
		p.Allows(t, "the next query", query)
		p.Allows(t, "its reply", reply)
	})
}

// What a permit lets pass is counted by its session in the end: when another one takes its place, and with the connection's end.
func TestPolicyCounts(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		syn := harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)
		data, back := harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK), harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpACK)
		p.Allows(t, "SYN", harness.WireBrings(syn))
		for range 100 {
			p.Allows(t, "data", harness.WireBrings(data))
			p.Allows(t, "data back", harness.PodSends(back))
		}
		p.Allows(t, "FIN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpFIN|fixtures.TcpACK)))
		p.Allows(t, "FIN back", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpFIN|fixtures.TcpACK)))
		all := p.Entries(t)
		s := all[len(all)-1]
		bytes := uint64(102 * len(data.Bytes()))
		if s.Packets != [2]uint64{102, 101} || s.Bytes != [2]uint64{bytes, bytes - uint64(len(back.Bytes()))} {
			t.Errorf("packets %d, bytes %d, expected 102 and 101, %d", s.Packets, s.Bytes, bytes)
		}
		if s.Source != client || s.Destination != server || s.State != conntrack.Closed || s.Ingress != harness.ThePolicy || s.Egress != 0 {
			t.Errorf("session %+v", s)
		}
		p.Allows(t, "the next connection with these ports", harness.WireBrings(syn))
		all = p.Entries(t)
		if s := all[len(all)-1]; s.Packets != [2]uint64{1, 0} || s.State == conntrack.Closed {
			t.Errorf("session %+v", s)
		}
	})
}
