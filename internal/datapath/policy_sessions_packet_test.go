package datapath

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// Answers need no rule, in either direction, and nothing that only looks like one gets in.
func TestPolicyAnswers(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		pod, peer := end{podA, 40000}.at(family), end{podB, 53}.at(family)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsEvery}))
		asks, answer := podSends(datagram(fromPod(), pod, peer)), wireBrings(datagram(fromWire(), peer, pod))
		p.denies(t, "an answer that nobody has asked for", answer, noIngress)
		p.allows(t, "the question", asks)
		p.allows(t, "its answer", answer)
		p.allows(t, "another answer", answer)
		p.denies(t, "from another port", wireBrings(datagram(fromWire(), end{podB, 54}.at(family), pod)), noIngress)
		p.denies(t, "to another port", wireBrings(datagram(fromWire(), peer, end{podA, 40001}.at(family))), noIngress)
		p.denies(t, "from somebody else", wireBrings(datagram(fromWire(), end{podC, 53}.at(family), pod)), noIngress)

		peer = end{podB, 80}.at(family)
		p.denies(t, "TCP opened with the answer's ports", wireBrings(segmentOf(fromWire(), peer, pod, tcpSYN)), noIngress)
		p.allows(t, "SYN", podSends(segmentOf(fromPod(), pod, peer, tcpSYN)))
		p.allows(t, "SYN, ACK", wireBrings(segmentOf(fromWire(), peer, pod, tcpSYN|tcpACK)))
		p.allows(t, "ACK", podSends(segmentOf(fromPod(), pod, peer, tcpACK)))
		for range 3 {
			p.allows(t, "data", podSends(segmentOf(fromPod(), pod, peer, tcpACK|tcpPSH)))
			p.allows(t, "data back", wireBrings(segmentOf(fromWire(), peer, pod, tcpACK|tcpPSH)))
		}
		p.denies(t, "SYN back", wireBrings(segmentOf(fromWire(), peer, pod, tcpSYN)), noIngress)

		p.allows(t, "echo", podSends(echoOf(fromPod(), pod.Addr(), peer.Addr(), 5, false)))
		p.allows(t, "its reply", wireBrings(echoOf(fromWire(), peer.Addr(), pod.Addr(), 5, true)))
		p.denies(t, "another reply", wireBrings(echoOf(fromWire(), peer.Addr(), pod.Addr(), 6, true)), noIngress)
		p.denies(t, "echo back", wireBrings(echoOf(fromWire(), peer.Addr(), pod.Addr(), 5, false)), noIngress)
	})
}

// Both ends of a connection within the node are judged at once, and either may refuse.
func TestPolicyWithinNode(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		from, to := end{podA, 40000}.at(family), end{podA2, 80}.at(family)
		syn, answer := podSends(segmentOf(fromPod(), from, to, tcpSYN)), pod2Sends(segmentOf(fromPod(), to, from, tcpSYN|tcpACK))
		data := podSends(segmentOf(fromPod(), from, to, tcpACK))
		p.govern(t, podA, policy.Sets{Egress: rules}, inSet(rules, map[policy.Identity]policy.Ports{idA2: portsTCP80}))
		p.govern(t, podA2, policy.Sets{Ingress: rulesOf2, Egress: policy.Closed}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA: 0}))
		p.denies(t, "the receiver", syn, noIngress)
		p.govern(t, podA2, policy.Sets{Ingress: rulesOf2, Egress: policy.Closed}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA: portsTCP80}))
		p.allows(t, "both", syn)
		p.allows(t, "the answer", answer)
		p.allows(t, "data", data)
		p.denies(t, "what the closed end opens", pod2Sends(datagram(fromPod(), to, end{podA, 53}.at(family))), outClosed)
		if all := p.sessions(t); len(all) != 1+(family-4)/2 || all[len(all)-1].Egress != theirs || all[len(all)-1].Ingress != theirs {
			t.Errorf("sessions %+v", all)
		}
		p.egress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.denies(t, "the sender", data, noEgress)
		p.denies(t, "the sender's answer", pod2Sends(segmentOf(fromPod(), to, from, tcpACK)), noEgress)
	})
}

// What is no longer allowed stops with its next packet, whatever the permit said; what still is goes on.
func TestPolicyRevokes(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
		syn := wireBrings(segmentOf(fromWire(), client, server, tcpSYN))
		data := wireBrings(segmentOf(fromWire(), client, server, tcpACK))
		back := podSends(segmentOf(fromPod(), server, client, tcpACK))
		open := func() {
			t.Helper()
			for what, in := range map[string]run{"data": data, "data again": data, "back": back, "back again": back} {
				p.allows(t, what, in)
			}
		}
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.allows(t, "SYN", syn)
		open()
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80, idWorld: portsTCP80})
		open()
		p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
		for range 3 {
			p.denies(t, "data, forbidden", data, noIngress)
			p.denies(t, "data back, forbidden", back, noIngress)
		}
		p.denies(t, "SYN, forbidden", syn, noIngress)
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		open()

		// A connection that began when no policy was there, and of which no socket tells: who sends has opened it.
		delete(p.tables.Pods, podA.v4)
		delete(p.tables.Pods, podA.v6)
		p.sync(t)
		p.forget(t)
		open()
		p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
		p.denies(t, "from before the policy", data, noIngress)

		// UDP: what its receiver sends does not turn it round.
		client, server = end{podB, 40000}.at(family), end{podA, 53}.at(family)
		query := wireBrings(datagram(fromWire(), client, server))
		reply := podSends(datagram(fromPod(), server, client))
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsUDP})
		p.allows(t, "query", query)
		p.allows(t, "reply", reply)
		p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
		p.denies(t, "reply, forbidden", reply, noIngress)
		p.denies(t, "query, forbidden", query, noIngress)
	})
}

// A session that others have pushed out is asked about again: what is allowed goes on, what is not does not.
func TestPolicyAfterEviction(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		for _, c := range []struct {
			name           string
			client, server uint16
		}{{"a server's port", 40000, 80}, {"no server's port", 81, 80}} {
			client, server := end{podB, c.client}.at(family), end{podA, c.server}.at(family)
			data := wireBrings(segmentOf(fromWire(), client, server, tcpACK))
			back := podSends(segmentOf(fromPod(), server, client, tcpACK))
			last := podSends(segmentOf(fromPod(), server, client, tcpRST|tcpACK))
			allowed := map[policy.Identity]policy.Ports{idB: portsTCP80}
			p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, allowed))
			p.forget(t)
			p.denies(t, c.name+": data back, first", back, noEgress)
			p.allows(t, c.name+": data", data)
			p.allows(t, c.name+": data again", data)
			p.allows(t, c.name+": data back", back)
			p.forget(t)
			p.denies(t, c.name+": a reset of who may not open it", last, noEgress)
			p.allows(t, c.name+": a reset", wireBrings(segmentOf(fromWire(), client, server, tcpRST|tcpACK)))
			if n := len(p.sessions(t)); n != 0 {
				t.Errorf("%s: %d sessions begin with a reset", c.name, n)
			}
			p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{}))
			p.forget(t)
			p.denies(t, c.name+": data, denied", data, noIngress)
			p.denies(t, c.name+": data back, denied", back, noEgress)
		}
		// Of UDP every packet opens.
		query := wireBrings(datagram(fromWire(), end{podB, 40000}.at(family), end{podA, 53}.at(family)))
		reply := podSends(datagram(fromPod(), end{podA, 53}.at(family), end{podB, 40000}.at(family)))
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsUDP}))
		p.forget(t)
		p.denies(t, "a reply to nothing", reply, noEgress)
		p.allows(t, "the next query", query)
		p.allows(t, "its reply", reply)
	})
}

// What a permit lets pass is counted by its session in the end: when another one takes its place, and with the connection's end.
func TestPolicyCounts(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
		syn := segmentOf(fromWire(), client, server, tcpSYN)
		data, back := segmentOf(fromWire(), client, server, tcpACK), segmentOf(fromPod(), server, client, tcpACK)
		p.allows(t, "SYN", wireBrings(syn))
		for range 100 {
			p.allows(t, "data", wireBrings(data))
			p.allows(t, "data back", podSends(back))
		}
		p.allows(t, "FIN", wireBrings(segmentOf(fromWire(), client, server, tcpFIN|tcpACK)))
		p.allows(t, "FIN back", podSends(segmentOf(fromPod(), server, client, tcpFIN|tcpACK)))
		all := p.sessions(t)
		s := all[len(all)-1]
		bytes := uint64(102 * len(data.bytes()))
		if s.Packets != [2]uint64{102, 101} || s.Bytes != [2]uint64{bytes, bytes - uint64(len(back.bytes()))} {
			t.Errorf("packets %d, bytes %d, expected 102 and 101, %d", s.Packets, s.Bytes, bytes)
		}
		if s.Source != client || s.Destination != server || s.State != ConnectionClosed || s.Ingress != theirs || s.Egress != 0 {
			t.Errorf("session %+v", s)
		}
		p.allows(t, "the next connection with these ports", wireBrings(syn))
		all = p.sessions(t)
		if s := all[len(all)-1]; s.Packets != [2]uint64{1, 0} || s.State == ConnectionClosed {
			t.Errorf("session %+v", s)
		}
	})
}
