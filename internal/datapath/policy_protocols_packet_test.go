package datapath

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// Later fragments go the way of the first; without it, only rules without ports can tell.
func TestPolicyFragments(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		pieces := func(frame packet, port uint16) (first, last packet) {
			whole := datagram(frame, end{podB, 40000}.at(family), end{podA, port}.at(family)).payload("sixteen bytes at least, and more")
			return whole.fragment(0, true), whole.fragment(16, false)
		}
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		first, last := pieces(fromWire(), 53)
		p.denies(t, "the first piece", wireBrings(first), noIngress)
		p.denies(t, "the last piece of what was denied", wireBrings(last), noIngress)
		p.forgetFragments(t)
		p.denies(t, "the last piece of what is unknown", wireBrings(last), noPiece)
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsUDP})
		p.allows(t, "an unknown piece of a protocol that is allowed whole", wireBrings(last))
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsOf53})
		p.forget(t)
		p.denies(t, "an unknown piece of a port that is allowed", wireBrings(last), noPiece)
		p.allows(t, "the first piece of a port that is allowed", wireBrings(first))
		p.allows(t, "the last piece of that", wireBrings(last))
		p.allows(t, "an answer in pieces", podSends(datagram(fromPod(), end{podA, 53}.at(family), end{podB, 40000}.at(family)).payload("sixteen bytes at least, and more").fragment(0, true)))
	})
}

// ICMP errors belong to what they quote; without that they are like any protocol without ports.
func TestPolicyErrors(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	hop := member{v4: addr("172.30.0.77"), v6: addr("fd00:172:30::77")}
	eachFamily(t, func(t *testing.T, family int) {
		kind, code := byte(3), byte(3)
		if family == 6 {
			kind, code = 1, 4
		}
		none := eth(MAC{}, MAC{})
		asked, other := end{podA, 40000}.at(family), end{podB, 53}.at(family)
		about := func(frame packet, who netip.Addr, quoted packet) packet {
			return quoting(frame, who, quoted.src, kind, code, 0, quoted, 500)
		}
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsOf53}))
		sent := datagram(none, asked, other)
		p.denies(t, "about what the pod may not send", wireBrings(about(fromWire(), hop.addr(family), datagram(none, asked, end{podB, 54}.at(family)))), noIngress)
		p.allows(t, "the packet", podSends(datagram(fromPod(), asked, other)))
		p.allows(t, "of its receiver", wireBrings(about(fromWire(), podB.addr(family), sent)))
		p.allows(t, "of a router", wireBrings(about(fromWire(), hop.addr(family), sent)))
		mine := about(fromWire(), hop.addr(family), datagram(none, end{podC, 40000}.at(family), other))
		mine.dst = podA.addr(family)
		p.denies(t, "about somebody else's packet", wireBrings(mine), noIngress)
		p.allows(t, "an answer", wireBrings(datagram(fromWire(), other, asked)))
		p.allows(t, "about the answer", podSends(about(fromPod(), podA.addr(family), datagram(none, other, asked))))
		p.denies(t, "about what nobody has sent", podSends(about(fromPod(), podA.addr(family), datagram(none, end{podC, 53}.at(family), asked))), noEgress)

		// A pod here does not speak for routers.
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsOf53})
		p.allows(t, "an answer's question", wireBrings(datagram(fromWire(), other, end{podA, 53}.at(family))))
		lie := about(fromPod(), podA2.addr(family), datagram(none, end{podA, 53}.at(family), other))
		p.denies(t, "of a pod that has not got it", pod2Sends(lie), uint32(bpfDropReasonDROP_FORGED_ERROR))
	})
}

// Protocols without ports are allowed where every protocol is; SCTP has ports where TCP has them.
func TestPolicyProtocols(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		gre := wireBrings(fromWire().ip(podB.addr(family), podA.addr(family)).raw(47, make([]byte, 12)))
		back := podSends(fromPod().ip(podA.addr(family), podB.addr(family)).raw(47, make([]byte, 12)))
		ping := wireBrings(echoOf(fromWire(), podB.addr(family), podA.addr(family), 9, false))
		init := func(port uint16) run {
			return wireBrings(sctp(fromWire(), end{podB, 40000}.at(family), end{podA, port}.at(family)))
		}
		short := wireBrings(fromWire().ip(podB.addr(family), podA.addr(family)).raw(protoTCP, []byte{0, 1, 0, 80}))
		for _, ports := range []policy.Ports{portsTCP80, portsUDP} {
			p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: ports}))
			p.denies(t, "another protocol", gre, noIngress)
			p.denies(t, "echo", ping, noIngress)
			p.denies(t, "SCTP", init(80), noIngress)
			p.denies(t, "TCP that is cut off", short, noIngress)
		}
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsSCTP})
		p.allows(t, "SCTP, allowed", init(80))
		p.denies(t, "SCTP to another port", init(81), noIngress)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsEvery}))
		p.allows(t, "another protocol, allowed", gre)
		p.allows(t, "its answer", back)
		p.allows(t, "echo, allowed", ping)
		p.allows(t, "its reply", podSends(echoOf(fromPod(), podA.addr(family), podB.addr(family), 9, true)))
	})
}
