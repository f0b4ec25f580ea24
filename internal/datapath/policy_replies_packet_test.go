package datapath

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// Who has opened a translated connection is known also where nobody saw its session begin: replies need no rule of their own, and a pod that may not
// open it any more gets none, whatever its rules say of packets that others send it.
func TestPolicyRepliesOfTranslated(t *testing.T) {
	p := newPolicyRig(t, Config{Services: true})
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		pod, frontend, backend := end{podA, 40100}.at(family), frontendOfPods.at(family), end{podB, 8080}.at(family)
		asks, back := transport(fromPod(), pod, frontend), transport(fromWire(), backend, pod)
		if protocol == protoTCP {
			asks = asks.segment(tcpSYN, 1, 1)
		}
		p.serve(t, frontend, 0, backend)
		p.govern(t, podA, policy.Sets{}, nil)
		p.allows(t, name+" before there are policies", podSends(asks))

		p.ingress(t, map[policy.Identity]policy.Ports{})
		p.forget(t)
		p.allows(t, name+": a reply", wireBrings(back))
		p.denies(t, name+": to another port", wireBrings(transport(fromWire(), backend, end{podA, 40101}.at(family))), noIngress)
		if protocol == protoTCP {
			p.forget(t)
			p.denies(t, name+": SYN into it", wireBrings(back.segment(tcpSYN, 1, 1)), noIngress)
		}
		p.egress(t, map[policy.Identity]policy.Ports{})
		p.forget(t)
		p.denies(t, name+": a reply to what the pod may not open", wireBrings(back), noEgress)
		p.denies(t, name+": what the pod may not open", podSends(transport(fromPod(), pod, frontend)), noEgress)
		p.govern(t, podA, policy.Sets{}, nil)
	})
}

// A pod that may not open a connection does not keep it by saying, or not saying, who has opened it: a server of this node says that it has accepted it.
func TestPolicySocketProofOfServer(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		server, client := end{podA, 80}.at(family), end{podA2, 40000}.at(family)
		back := podSends(segmentOf(fromPod(), server, client, tcpPSH|tcpACK))
		s := p.newSockets(t, podA, "blpoda", family)
		p.govern(t, podA2, policy.Sets{Egress: rulesHere}, map[policy.Peer]policy.Ports{})
		p.forget(t)
		p.allows(t, "of a server without a socket", back)
		s.accepted(t, server, client)
		p.forget(t)
		p.denies(t, "of a server that has accepted it", back, noEgress)
		p.govern(t, podA2, policy.Sets{Egress: rulesHere}, inSet(rulesHere, map[policy.Identity]policy.Ports{idA: portsTCP80}))
		p.forget(t)
		p.allows(t, "of a server that the client may ask", back)
		if all := p.sessions(t); len(all) != 1 || all[0].Source != client {
			t.Errorf("sessions %+v: expected one that %s has opened", all, client)
		}
	})
}

// A server that policies isolate in both directions opens nothing by what it sends on a connection that it has accepted: both have to allow it, whenever they change.
func TestPolicySocketProofOfIsolatedServer(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	allows := func(set policy.Set) map[policy.Peer]policy.Ports {
		return inSet(set, map[policy.Identity]policy.Ports{idB: portsEvery})
	}
	nobody := map[policy.Peer]policy.Ports{}
	both := policy.Sets{Ingress: rules, Egress: rulesOf2}
	eachFamily(t, func(t *testing.T, family int) {
		server, client := end{podA, 8080}.at(family), end{podB, 40001}.at(family)
		from := wireBrings(segmentOf(fromWire(), client, server, tcpPSH|tcpACK))
		back := podSends(segmentOf(fromPod(), server, client, tcpPSH|tcpACK))
		p.newSockets(t, podA, "blpoda", family).accepted(t, server, client)

		p.govern(t, podA, both, allows(rulesOf2))
		p.forget(t)
		p.denies(t, "of a server that may not be reached", back, noIngress)
		p.denies(t, "to it", from, noIngress)

		for what, in := range map[string]run{"of": back, "to": from} {
			p.govern(t, podA, policy.Sets{Egress: rulesOf2}, allows(rulesOf2))
			p.forget(t)
			p.allows(t, "of a server that everybody may reach", back)
			p.govern(t, podA, both, allows(rulesOf2))
			p.denies(t, what+" one that may not be reached any more", in, noIngress)
		}

		// What a socket says makes no answers of what the server may not send any more, until its client goes on.
		p.govern(t, podA, both, allows(rules))
		p.govern(t, podA, policy.Sets{Ingress: rules}, nil)
		p.tables.Policies[policy.Peer{Set: rulesOf2, Identity: idB}] = portsEvery
		p.govern(t, podA, both, nil)
		p.forget(t)
		p.allows(t, "of a server that both allow", back)
		p.govern(t, podA, both, allows(rules))
		p.denies(t, "of one that may not open it any more", back, noEgress)
		p.allows(t, "to it, of its client", from)
		p.allows(t, "of it, to its client", back)
		p.govern(t, podA, both, nobody)
		p.denies(t, "of one that neither allows", back, noEgress)
		p.govern(t, podA, policy.Sets{}, nil)
	})
}

// A segment that a server sends to the world makes a NAT entry where there is none, as if the server had opened the connection. Its socket says that it has not.
func TestPolicySocketProofOfTranslatedServer(t *testing.T) {
	p := newPolicyRig(t, Config{Services: true})
	allowed := map[policy.Identity]policy.Ports{idWorld: portsEvery}
	eachFamily(t, func(t *testing.T, family int) {
		server, client := end{podA, 8080}.at(family), netip.AddrPortFrom(world.addr(family), 41000)
		p.forgetConnections(t)
		p.govern(t, podA, policy.Sets{}, nil)
		var got outcome
		p.stage.do(func() {
			var err error
			if got, err = p.run(podSends(segmentOf(fromPod(), server, client, tcpPSH|tcpACK))); err != nil {
				t.Fatal(err)
			}
		})
		masqueraded := sourceOf(family, got.out)
		if masqueraded.Addr() != nodeA.addr(family) {
			t.Fatalf("the segment of the server leaves from %s", masqueraded)
		}
		from := wireBrings(segmentOf(eth(router, nodeA.mac), client, masqueraded, tcpPSH|tcpACK))

		p.govern(t, podA, policy.Sets{Ingress: rules}, map[policy.Peer]policy.Ports{})
		p.forget(t)
		p.allows(t, "to a pod without a socket", from)
		p.newSockets(t, podA, "blpoda", family).accepted(t, server, client)
		p.forget(t)
		p.denies(t, "to a server that may not be reached", from, noIngress)
		p.govern(t, podA, policy.Sets{Ingress: rules}, inSet(rules, allowed))
		p.forget(t)
		p.allows(t, "to a server that may be reached", from)
		p.govern(t, podA, policy.Sets{Ingress: rules}, map[policy.Peer]policy.Ports{})
		p.denies(t, "to one that may not be reached any more", from, noIngress)

		// The entry goes on to say that the pod has opened it: a socket that listens is no way around rules for egress.
		p.govern(t, podA, policy.Sets{Egress: rules}, map[policy.Peer]policy.Ports{})
		p.forget(t)
		p.denies(t, "to a pod that may not open it", from, noEgress)
		p.govern(t, podA, policy.Sets{}, nil)
	})
}
