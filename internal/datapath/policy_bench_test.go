package datapath

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// BenchmarkPolicy gives, as BenchmarkPrograms does, what judging a packet costs: nobody asks about it, a permit covers it, its session is
// known, it is judged by rules of one entry or of very many blocks.
func BenchmarkPolicy(b *testing.B) {
	const data, last = tcpACK | tcpPSH, tcpRST // a reset without a session begins none: it is judged each time
	for _, family := range families {
		from, to := end{podA, 40000}.at(family), end{podA2, 80}.at(family)
		segment := func(flags byte) run { return podSends(segmentOf(fromPod(), from, to, flags).ttl(255)) }
		ping := podSends(echoOf(fromPod(), from.Addr(), to.Addr(), 7, false).ttl(255))
		for _, c := range []struct {
			name    string
			policed bool
			blocks  int
			run
		}{
			{"unpoliced", false, 0, segment(data)},
			{"permit", true, 0, segment(data)},
			{"session", true, 0, ping},
			{"judged", true, 0, segment(last)},
			{"judged,100000-blocks", true, 100000, segment(last)},
		} {
			b.Run(fmt.Sprintf("%s/IPv%d", c.name, family), func(b *testing.B) {
				p := newPolicyRig(b, Config{EBPFRouting: true, Masquerade: true, Services: true})
				for i := range c.blocks {
					a := podA.v4.As4()
					a[0], a[1], a[2], a[3] = 100, byte(i>>16), byte(i>>8), byte(i)
					p.tables.Blocks[prefix(fmt.Sprintf("%d.%d.%d.%d/32", a[0], a[1], a[2], a[3]))] = idWorld
				}
				if c.policed {
					for _, pod := range []member{podA, podA2} {
						everything := map[policy.Identity]policy.Ports{idA: portsEvery, idA2: portsEvery}
						p.govern(b, pod, policy.Sets{Ingress: rules, Egress: rules}, inSet(rules, everything))
					}
				}
				p.measure(b, c.run, verdictRedirect)
			})
		}
	}
}

// BenchmarkPolicyConnection gives what the programs of a server's node take for one connection that asks once and is answered once: eight
// packets, each measured by itself, so with the same share of measuring each. Who asks is known by a block.
func BenchmarkPolicyConnection(b *testing.B) {
	for _, c := range []struct {
		name    string
		policed bool
		flows   FlowMode
		blocks  int
	}{
		{name: "unpoliced"},
		{name: "flows-off", policed: true},
		{name: "flows-off,100000-blocks", policed: true, blocks: 100000},
		{name: "flows", policed: true, flows: FlowsPolicy},
		{name: "flows,100000-blocks", policed: true, flows: FlowsPolicy, blocks: 100000},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := newPolicyRig(b, Config{EBPFRouting: true, Flows: c.flows})
			delete(p.tables.Identities, podB.v4)
			p.tables.Blocks[prefix("10.1.2.0/24")] = idWorld
			for i := range uint32(c.blocks) {
				spread := i * 0x9e3779b1
				p.tables.Blocks[prefix(fmt.Sprintf("10.%d.%d.%d/32", byte(spread>>24), byte(spread>>16), byte(spread>>8)))] = idWorld
			}
			p.sync(b)
			if c.policed {
				p.ingress(b, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
			}
			p.measureConnections(b)
		})
	}
}

// measureConnections has podB open b.N connections to podA.
func (p *policyRig) measureConnections(b *testing.B) {
	const different, piece = 20000, 250
	reader, err := p.d.Flows.Reader()
	if err != nil {
		b.Fatal(err)
	}
	defer reader.Close()
	var sums []time.Duration
	sum := time.Duration(0)
	for i := range b.N {
		client, server := end{podB, uint16(40000 + i%different)}.at(4), end{podA, 80}.at(4)
		there := func(flags byte) run { return wireBrings(segmentOf(fromWire(), client, server, flags)) }
		back := func(flags byte) run { return podSends(segmentOf(fromPod(), server, client, flags)) }
		p.stage.do(func() {
			for _, in := range []run{
				there(tcpSYN), back(tcpSYN | tcpACK), there(tcpACK), there(tcpACK | tcpPSH), back(tcpACK | tcpPSH),
				there(tcpFIN | tcpACK), back(tcpFIN | tcpACK), there(tcpACK),
			} {
				program, failure := p.program(in.program)
				if failure != nil {
					err = failure
					return
				}
				code, took, failure := repeat(program, in.in, &skb{Ifindex: uint32(p.stage.devices[in.device])}, 1)
				if failure == nil && code != verdictRedirect {
					failure = fmt.Errorf("verdict %s", code)
				}
				if failure != nil {
					err = failure
					return
				}
				sum += took
			}
		})
		if i%piece == piece-1 {
			sums, sum = append(sums, sum/piece), 0
			if e := reader.Read(0, func(flow.Event) {}); err == nil {
				err = e
			}
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if len(sums) > 0 {
		b.ReportMetric(float64(slices.Min(sums).Nanoseconds()), "ns/connection")
	}
}

// BenchmarkPolicySockets gives what it costs to ask the receiver's sockets about a packet of no known session: a pod whose sockets nobody sees, one without a
// socket for it, one that has opened the connection (two lookups), one that has accepted it (one), and the same of a datagram that the rules forbid.
func BenchmarkPolicySockets(b *testing.B) {
	for _, family := range families {
		pod, peer := end{podA, 40000}.at(family), end{podB, 80}.at(family)
		last := wireBrings(segmentOf(fromWire(), peer, pod, tcpRST).ttl(255)) // begins no session: it is judged each time
		for _, c := range []struct {
			name    string
			run     run
			verdict verdict
			prepare func(b *testing.B, s sockets)
		}{
			{"no-sockets", last, verdictRedirect, nil},
			{"no-socket", last, verdictRedirect, func(*testing.B, sockets) {}},
			{"opened", last, verdictRedirect, func(b *testing.B, s sockets) { s.connected(b, pod, peer) }},
			{"accepted", last, verdictRedirect, func(b *testing.B, s sockets) { s.accepted(b, pod, peer) }},
			{"datagram,no-sockets", wireBrings(datagram(fromWire(), peer, pod).ttl(255)), verdictDrop, nil},
			{"datagram,no-socket", wireBrings(datagram(fromWire(), peer, pod).ttl(255)), verdictDrop, func(*testing.B, sockets) {}},
		} {
			b.Run(fmt.Sprintf("%s/IPv%d", c.name, family), func(b *testing.B) {
				p := newPolicyRig(b, Config{EBPFRouting: true})
				p.ingress(b, map[policy.Identity]policy.Ports{idB: portsTCP80})
				if c.verdict == verdictRedirect {
					p.ingress(b, map[policy.Identity]policy.Ports{idB: portsEvery})
				}
				if c.prepare != nil {
					c.prepare(b, p.newSockets(b, podA, "blpoda", family))
				}
				p.measure(b, c.run, c.verdict)
			})
		}
	}
}
