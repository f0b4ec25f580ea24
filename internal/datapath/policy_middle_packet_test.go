package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// What a rule of the isolated end allows is let pass in the midst of a connection whose session was pushed out, whatever ports its
// ends have. SYN opens no more than it did.
func TestPolicyAnyPortsAfterEviction(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	const high = policy.Ports(20)
	p.tables.Ports[policy.PortPrefix{Ports: high, Bits: 24, Protocol: protoTCP, Port: 50051}] = theirs
	eachFamily(t, func(t *testing.T, family int) {
		for _, clientPort := range []uint16{1500, 40000} {
			t.Run(fmt.Sprint("from port ", clientPort), func(t *testing.T) {
				// podA is the server, and then the client.
				server, client := end{podA, 50051}.at(family), end{podB, clientPort}.at(family)
				comes := func(from, to netip.AddrPort, flags byte) run {
					return wireBrings(segmentOf(fromWire(), from, to, flags))
				}
				leaves := func(from, to netip.AddrPort, flags byte) run {
					return podSends(segmentOf(fromPod(), from, to, flags))
				}
				p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: high}))
				for what, first := range map[string]run{"data": comes(client, server, tcpACK), "data back": leaves(server, client, tcpACK)} {
					p.forget(t)
					p.allows(t, "to the pod: "+what, first)
					p.allows(t, "to the pod: the other direction of "+what, comes(client, server, tcpACK))
					p.allows(t, "to the pod: the other direction of "+what, leaves(server, client, tcpACK))
					p.denies(t, "to the pod: SYN back", leaves(server, client, tcpSYN), noEgress)
				}
				p.forget(t)
				p.denies(t, "to the pod: SYN and ACK of who has opened", comes(client, server, tcpSYN|tcpACK), noEgress)

				server, client = end{podB, 50051}.at(family), end{podA, clientPort}.at(family)
				p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{{Set: rulesOf2, Identity: idB}: high})
				for what, first := range map[string]run{"data": leaves(client, server, tcpACK), "data back": comes(server, client, tcpACK)} {
					p.forget(t)
					p.allows(t, "from the pod: "+what, first)
					p.allows(t, "from the pod: the other direction of "+what, leaves(client, server, tcpACK))
					p.allows(t, "from the pod: the other direction of "+what, comes(server, client, tcpACK))
					p.denies(t, "from the pod: SYN back", comes(server, client, tcpSYN), noIngress)
				}
				p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{})
				p.forget(t)
				for what, in := range map[string]run{"data": leaves(client, server, tcpACK), "data back": comes(server, client, tcpACK)} {
					if got := p.try(t, in); got != verdictDrop {
						t.Errorf("%s of what neither end may open: %s", what, got)
					}
				}
			})
		}
	})
}

// A session whose opener was guessed goes on for as long as either end may open it to the other.
func TestPolicyGuessedAgain(t *testing.T) {
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
		p.allows(t, "data, which only its receiver may open now", data)
		p.allows(t, "data back", back)
		p.govern(t, podA, sets, map[policy.Peer]policy.Ports{})
		p.denies(t, "data that nobody may open", data, noEgress)
	})
}

// try gives the verdict about one packet.
func (p *policyRig) try(t *testing.T, in run) (v verdict) {
	t.Helper()
	p.stage.do(func() {
		got, err := p.run(in)
		if err != nil {
			t.Error(err)
		}
		v = got.verdict
	})
	return v
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
