package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// A packet without SYN of a session that nobody knows is judged by who sends it, whatever ports its ends have; so is SYN with ACK. Where no socket says otherwise
// who sends it has opened the connection: what the other end may open does not help.
func TestPolicyMiddleByItsSender(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	const some = policy.Ports(20)
	for _, port := range []uint16{80, 50000, 50051} {
		p.tables.Ports[policy.PortPrefix{Ports: some, Bits: 24, Protocol: protoTCP, Port: port}] = theirs
	}
	eachFamily(t, func(t *testing.T, family int) {
		for _, ports := range [][2]uint16{{1500, 80}, {40000, 50000}, {40000, 80}, {80, 50051}, {1500, 50051}} {
			t.Run(fmt.Sprint(ports), func(t *testing.T) {
				// podA is the server, and then the client.
				server, client := end{podA, ports[1]}.at(family), end{podB, ports[0]}.at(family)
				comes := func(from, to netip.AddrPort, flags byte) run {
					return wireBrings(segmentOf(fromWire(), from, to, flags))
				}
				leaves := func(from, to netip.AddrPort, flags byte) run {
					return podSends(segmentOf(fromPod(), from, to, flags))
				}
				p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: some}))
				p.forget(t)
				for _, flags := range []byte{tcpPSH | tcpACK, tcpSYN | tcpACK, tcpFIN | tcpACK, tcpRST | tcpACK, 0} {
					p.denies(t, "from the pod: what it may not open", leaves(server, client, flags), noEgress)
				}
				p.allows(t, "to the pod: data", comes(client, server, tcpACK))
				p.allows(t, "to the pod: data back", leaves(server, client, tcpACK))
				p.denies(t, "to the pod: SYN back", leaves(server, client, tcpSYN), noEgress)

				server, client = end{podB, ports[1]}.at(family), end{podA, ports[0]}.at(family)
				p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{{Set: rulesOf2, Identity: idB}: some})
				p.forget(t)
				for _, flags := range []byte{tcpPSH | tcpACK, tcpSYN | tcpACK, tcpFIN | tcpACK, tcpRST | tcpACK, 0} {
					p.denies(t, "to the pod: what others may not open", comes(server, client, flags), noIngress)
				}
				p.allows(t, "from the pod: data", leaves(client, server, tcpACK))
				p.allows(t, "from the pod: data back", comes(server, client, tcpACK))
				p.denies(t, "from the pod: SYN back", comes(server, client, tcpSYN), noIngress)

				// Isolated in one direction only, it is as free in the other one as it ever was, and no freer in this one.
				p.egress(t, map[policy.Identity]policy.Ports{})
				p.forget(t)
				p.denies(t, "from a pod isolated for egress only", leaves(client, server, tcpPSH|tcpACK), noEgress)
				p.ingress(t, map[policy.Identity]policy.Ports{})
				p.forget(t)
				p.denies(t, "to a pod isolated for ingress only", comes(server, client, tcpPSH|tcpACK), noIngress)
			})
		}
	})
}

// A session that nobody saw begin goes on for as long as whoever sends next may open it.
func TestPolicyUnseenAgain(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	sets := policy.Sets{Ingress: rules, Egress: rulesOf2}
	both := map[policy.Peer]policy.Ports{{Set: rules, Identity: idB}: portsEvery, {Set: rulesOf2, Identity: idB}: portsEvery}
	eachFamily(t, func(t *testing.T, family int) {
		server, client := end{podA, 50051}.at(family), end{podB, 1500}.at(family)
		data := wireBrings(segmentOf(fromWire(), client, server, tcpACK))
		back := podSends(segmentOf(fromPod(), server, client, tcpACK))
		p.govern(t, podA, sets, both)
		p.forget(t)
		p.allows(t, "data", data)
		p.govern(t, podA, sets, inSet(rules, map[policy.Identity]policy.Ports{idB: portsEvery}))
		p.allows(t, "data, which only its sender may open now", data)
		p.allows(t, "data back", back)
		p.govern(t, podA, sets, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsEvery}))
		p.denies(t, "data, which its sender may not open now", data, noIngress)
		p.allows(t, "data back, which its sender may open now", back)
		p.allows(t, "data of that session", data)
		p.govern(t, podA, sets, map[policy.Peer]policy.Ports{})
		p.denies(t, "data that nobody may open", data, noIngress)
		p.denies(t, "data back that nobody may open", back, noEgress)
	})
}

// ICMP errors about packets of SCTP belong to their sessions like others.
func TestPolicyErrorsAboutSCTP(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		kind, code := byte(3), byte(2) // protocol unreachable: a host without SCTP
		if family == 6 {
			kind, code = 1, 4
		}
		client, server := end{podA, 40000}.at(family), end{podB, 80}.at(family)
		about := func(quoted packet) run {
			return wireBrings(quoting(fromWire(), server.Addr(), quoted.src, kind, code, 0, quoted, 500))
		}
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsSCTP}))
		p.allows(t, "INIT", podSends(sctp(fromPod(), client, server)))
		p.allows(t, "an error about it", about(sctp(eth(MAC{}, MAC{}), client, server)))
		p.denies(t, "an error about another one", about(sctp(eth(MAC{}, MAC{}), client, end{podB, 81}.at(family))), noIngress)
	})
}
