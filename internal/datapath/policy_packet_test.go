package datapath

import (
	"fmt"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// Who may open what to a pod: by who asks, protocol and port; the first entry about somebody is the whole answer.
func TestPolicyIngress(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		from := func(who member, to uint16) run {
			return wireBrings(segmentOf(fromWire(), end{who, 40000}.at(family), end{podA, to}.at(family), tcpSYN))
		}
		udp := func(who member, to uint16) run {
			return wireBrings(datagram(fromWire(), end{who, 40000}.at(family), end{podA, to}.at(family)))
		}
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.allows(t, "the port", from(podB, 80))
		p.denies(t, "another port", from(podB, 81), noIngress)
		p.denies(t, "another protocol", udp(podB, 80), noIngress)
		p.denies(t, "another pod", from(podC, 80), noIngress)
		p.denies(t, "the world", from(world, 80), noIngress)
		p.denies(t, "another node", from(nodeB, 80), noIngress)

		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsRange, idWorld: portsUDP})
		for port := uint16(7998); port < 8010; port++ {
			if port >= 8000 && port < 8008 {
				p.allows(t, fmt.Sprint("port ", port), from(podB, port))
			} else {
				p.denies(t, fmt.Sprint("port ", port), from(podB, port), noIngress)
			}
		}
		p.allows(t, "any port of a protocol", udp(world, 9))
		p.denies(t, "another protocol from there", from(world, 9), noIngress)

		p.ingress(t, map[policy.Identity]policy.Ports{policy.IdentityPod: portsEvery, idB: 0})
		p.denies(t, "nothing for this one, before what all pods may", from(podB, 80), noIngress)
		p.denies(t, "not a pod", from(world, 80), noIngress)
		p.ingress(t, map[policy.Identity]policy.Ports{policy.IdentityUnknown: portsEvery})
		p.allows(t, "everybody", from(world, 80))
		p.allows(t, "everybody who is a pod", from(podB, 80))
		p.allows(t, "everybody whom nobody knows", from(nodeB, 80))
	})
}

// Whom a pod may open something to, wherever that is.
func TestPolicyEgress(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		to := func(whom member, port uint16) run {
			return podSends(segmentOf(fromPod(), end{podA, 40000}.at(family), end{whom, port}.at(family), tcpSYN))
		}
		p.egress(t, map[policy.Identity]policy.Ports{idB: portsTCP80, idA2: portsTCP80, idWorld: portsEvery})
		for name, whom := range map[string]member{"a pod of another node": podB, "a pod behind a tunnel": podT, "a pod here": podA2} {
			p.allows(t, name, to(whom, 80))
			p.denies(t, name+", another port", to(whom, 443), noEgress)
		}
		p.allows(t, "the world", to(world, 443))
		p.denies(t, "a pod without an entry", to(podC, 80), noEgress)
		p.denies(t, "another node", to(nodeB, 80), noEgress)
		p.denies(t, "an address that no pod has", to(ghost, 80), noEgress)
		p.allows(t, "its own node", to(nodeA, 22))
		p.allows(t, "another pod's packets", pod2Sends(segmentOf(eth(podA2.mac, podA2.gateway), end{podA2, 40000}.at(family), end{podC, 80}.at(family), tcpSYN)))
	})
}

// A pod of which it is not known what governs it reaches nobody and is reached by nobody but its own node.
func TestPolicyClosed(t *testing.T) {
	for _, routing := range []bool{true, false} {
		p := newPolicyRig(t, Config{EBPFRouting: routing})
		p.govern(t, podA, policy.Sets{Ingress: policy.Closed, Egress: policy.Closed}, nil)
		each(func(name string, family int, transport func(packet) packet) {
			to := func(whom member) run { return podSends(transport(fromPod().ip(podA.addr(family), whom.addr(family)))) }
			from := func(who member) run {
				return stackDelivers(transport(toPod().ip(who.addr(family), podA.addr(family))))
			}
			for whom, m := range map[string]member{"a pod here": podA2, "a pod elsewhere": podB, "the world": world, "another node": nodeB} {
				p.denies(t, name+" to "+whom, to(m), outClosed)
				p.denies(t, name+" from "+whom, forwarded(from(m)), inClosed)
			}
			p.denies(t, name+" from who only says to be its node", forwarded(from(nodeA)), inClosed)
			p.allows(t, name+" to its node", to(nodeA))
			itself := from(nodeB)
			itself.ingress = itself.device
			p.allows(t, name+" from itself, with another address", itself)
			p.allows(t, name+" from its node", from(nodeA))
		})
		discovery := fromPod().ipv6(podA.v6, addr("ff02::1:ff00:1")).ttl(255).icmp(135, 0)
		p.allows(t, "neighbour discovery", podSends(discovery))
		p.allows(t, "neighbour discovery of its node", stackDelivers(toPod().ipv6(addr("fe80::1"), podA.v6).ttl(255).icmp(136, 0)))
	}
}

// Policies judge what goes through a tunnel as what comes from the wire.
func TestPolicyTunnel(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		p.egress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.allows(t, "out", podSends(segmentOf(fromPod(), end{podA, 40000}.at(family), end{podT, 80}.at(family), tcpSYN)))
		p.denies(t, "out, forbidden", podSends(segmentOf(fromPod(), end{podA, 40000}.at(family), end{podT6, 80}.at(family), tcpSYN)), noEgress)
	})
}
