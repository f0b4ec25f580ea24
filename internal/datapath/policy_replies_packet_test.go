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
