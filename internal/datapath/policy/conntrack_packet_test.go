package policy_test

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Replies need no rule, in either direction, and a packet that only looks like one is denied.
func TestPolicyReplies(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		pod, peer := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 53}.At(family)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery}))
		request, reply := harness.PodSends(harness.Datagram(fixtures.FromPod(), pod, peer)), harness.WireBrings(harness.Datagram(fixtures.FromWire(), peer, pod))
		p.Denies(t, "a reply without a request", reply, harness.NoIngress)
		p.Allows(t, "the request", request)
		p.Allows(t, "its reply", reply)
		p.Allows(t, "another reply", reply)
		p.Denies(t, "from another port", harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 54}.At(family), pod)), harness.NoIngress)
		p.Denies(t, "to another port", harness.WireBrings(harness.Datagram(fixtures.FromWire(), peer, harness.End{Member: fixtures.PodA, Port: 40001}.At(family))), harness.NoIngress)
		p.Denies(t, "from another peer", harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodC, Port: 53}.At(family), pod)), harness.NoIngress)

		peer = harness.End{Member: fixtures.PodB, Port: 80}.At(family)
		p.Denies(t, "TCP opened with the reply's ports", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpSYN)), harness.NoIngress)
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

// For a connection within the node both ends are evaluated at once, and either may deny it.
func TestPolicyWithinNode(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		from, to := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodA2, Port: 80}.At(family)
		syn, reply := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), from, to, fixtures.TcpSYN)), harness.Pod2Sends(harness.SegmentOf(fixtures.FromPod(), to, from, fixtures.TcpSYN|fixtures.TcpACK))
		data := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), from, to, fixtures.TcpACK))
		p.Govern(t, fixtures.PodA, policy.Sets{Egress: harness.Rules}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdA2: harness.PortsTCP80}))
		p.Govern(t, fixtures.PodA2, policy.Sets{Ingress: harness.RulesOf2, Egress: policy.DenyAll}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdA: 0}))
		p.Denies(t, "the receiver", syn, harness.NoIngress)
		p.Govern(t, fixtures.PodA2, policy.Sets{Ingress: harness.RulesOf2, Egress: policy.DenyAll}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdA: harness.PortsTCP80}))
		p.Allows(t, "both", syn)
		p.Allows(t, "the reply", reply)
		p.Allows(t, "data", data)
		p.Denies(t, "what the closed end opens", harness.Pod2Sends(harness.Datagram(fixtures.FromPod(), to, harness.End{Member: fixtures.PodA, Port: 53}.At(family))), harness.OutClosed)
		if all := p.Entries(t); len(all) != 1+(family-4)/2 || all[len(all)-1].Egress != harness.ThePolicy || all[len(all)-1].Ingress != harness.ThePolicy {
			t.Errorf("entries %+v", all)
		}
		p.Egress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		p.Denies(t, "the sender", data, harness.NoEgress)
		p.Denies(t, "the sender's reply", harness.Pod2Sends(harness.SegmentOf(fixtures.FromPod(), to, from, fixtures.TcpACK)), harness.NoEgress)
	})
}

// A connection that is no longer allowed stops with its next packet, whatever the verdict cache says; others
// continue.
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
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80, harness.IdExternal: harness.PortsTCP80})
		open()
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsTCP80})
		for range 3 {
			p.Denies(t, "data, denied", data, harness.NoIngress)
			p.Denies(t, "data back, denied", back, harness.NoIngress)
		}
		p.Denies(t, "SYN, denied", syn, harness.NoIngress)
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		open()

		// A connection from before the policy, without a socket that says otherwise: the sender is the initiator.
		delete(p.Tables.Pods, fixtures.PodA.V4)
		delete(p.Tables.Pods, fixtures.PodA.V6)
		p.Sync(t)
		p.ClearVerdicts(t)
		open()
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsTCP80})
		p.Denies(t, "from before the policy", data, harness.NoIngress)

		// UDP: a packet of the receiver does not reverse the connection.
		client, server = harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 53}.At(family)
		query := harness.WireBrings(harness.Datagram(fixtures.FromWire(), client, server))
		reply := harness.PodSends(harness.Datagram(fixtures.FromPod(), server, client))
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP})
		p.Allows(t, "query", query)
		p.Allows(t, "reply", reply)
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsTCP80})
		p.Denies(t, "reply, denied", reply, harness.NoIngress)
		p.Denies(t, "query, denied", query, harness.NoIngress)
	})
}

// A connection whose entry was evicted is evaluated again: it continues if it is allowed.
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
			p.ClearVerdicts(t)
			p.Denies(t, c.name+": data back, first", back, harness.NoEgress)
			p.Allows(t, c.name+": data", data)
			p.Allows(t, c.name+": data again", data)
			p.Allows(t, c.name+": data back", back)
			p.ClearVerdicts(t)
			p.Denies(t, c.name+": a reset by an end that may not initiate it", last, harness.NoEgress)
			p.Allows(t, c.name+": a reset", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpRST|fixtures.TcpACK)))
			if n := len(p.Entries(t)); n != 0 {
				t.Errorf("%s: a reset creates %d entries", c.name, n)
			}
			p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{}))
			p.ClearVerdicts(t)
			p.Denies(t, c.name+": data, denied", data, harness.NoIngress)
			p.Denies(t, c.name+": data back, denied", back, harness.NoEgress)
		}
		// Every UDP packet may initiate.
		query := harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 53}.At(family)))
		reply := harness.PodSends(harness.Datagram(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: 53}.At(family), harness.End{Member: fixtures.PodB, Port: 40000}.At(family)))
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP}))
		p.ClearVerdicts(t)
		p.Denies(t, "a reply to nothing", reply, harness.NoEgress)
		p.Allows(t, "the next query", query)
		p.Allows(t, "its reply", reply)
	})
}

// The counts of a verdict cache are added to the entry: when another connection replaces it, and when the connection
// ends.
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
		if s.Source != client || s.Destination != server || s.State != conntrack.StateClosed || s.Ingress != harness.ThePolicy || s.Egress != 0 {
			t.Errorf("entry %+v", s)
		}
		p.Allows(t, "the next connection with these ports", harness.WireBrings(syn))
		all = p.Entries(t)
		if s := all[len(all)-1]; s.Packets != [2]uint64{1, 0} || s.State == conntrack.StateClosed {
			t.Errorf("entry %+v", s)
		}
	})
}
