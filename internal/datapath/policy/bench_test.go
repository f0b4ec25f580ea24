package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// BenchmarkPolicy measures policy enforcement as BenchmarkPrograms does: for a packet of a pod without policies, with
// a verdict cache, with a conntrack entry, and evaluated with one rule or with very many ipBlocks.
func BenchmarkPolicy(b *testing.B) {
	const data, last = fixtures.TcpACK | fixtures.TcpPSH, fixtures.TcpRST // a reset creates no entry, so each one is evaluated
	for _, family := range fixtures.Families {
		from, to := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodA2, Port: 80}.At(family)
		segment := func(flags byte) harness.Run {
			return harness.PodSends(harness.SegmentOf(fixtures.FromPod(), from, to, flags).Ttl(255))
		}
		ping := harness.PodSends(harness.EchoOf(fixtures.FromPod(), from.Addr(), to.Addr(), 7, false).Ttl(255))
		for _, c := range []struct {
			name     string
			selected bool
			blocks   int
			harness.Run
		}{
			{"unselected", false, 0, segment(data)},
			{"verdict-cache", true, 0, segment(data)},
			{"conntrack", true, 0, ping},
			{"evaluated", true, 0, segment(last)},
			{"evaluated,100000-blocks", true, 100000, segment(last)},
		} {
			b.Run(fmt.Sprintf("%s/IPv%d", c.name, family), func(b *testing.B) {
				p := harness.NewPolicy(b, config.Datapath{EBPFRouting: true, Masquerade: true, Services: true})
				for i := range c.blocks {
					a := fixtures.PodA.V4.As4()
					a[0], a[1], a[2], a[3] = 100, byte(i>>16), byte(i>>8), byte(i)
					p.Tables.Blocks[fixtures.Prefix(fmt.Sprintf("%d.%d.%d.%d/32", a[0], a[1], a[2], a[3]))] = harness.IdExternal
				}
				if c.selected {
					for _, pod := range []fixtures.Member{fixtures.PodA, fixtures.PodA2} {
						everything := map[policy.Identity]policy.Ports{harness.IdA: harness.PortsEvery, harness.IdA2: harness.PortsEvery}
						p.Govern(b, pod, policy.Sets{Ingress: harness.Rules, Egress: harness.Rules}, harness.InSet(harness.Rules, everything))
					}
				}
				p.Measure(b, c.Run, harness.VerdictRedirect)
			})
		}
	}
}

// BenchmarkPolicyConnection measures the programs of a server's node for one connection with one request and one
// reply: eight packets, each measured separately, with the same overhead. The client's identity is that of an
// ipBlock.
func BenchmarkPolicyConnection(b *testing.B) {
	for _, c := range []struct {
		name     string
		selected bool
		flows    config.FlowMode
		blocks   int
	}{
		{name: "unselected"},
		{name: "flows-off", selected: true},
		{name: "flows-off,100000-blocks", selected: true, blocks: 100000},
		{name: "flows", selected: true, flows: config.FlowsPolicy},
		{name: "flows,100000-blocks", selected: true, flows: config.FlowsPolicy, blocks: 100000},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := harness.NewPolicy(b, config.Datapath{EBPFRouting: true, Flows: c.flows})
			delete(p.Tables.Identities, fixtures.PodB.V4)
			p.Tables.Blocks[fixtures.Prefix("10.1.2.0/24")] = harness.IdExternal
			for i := range uint32(c.blocks) {
				spread := i * 0x9e3779b1
				p.Tables.Blocks[fixtures.Prefix(fmt.Sprintf("10.%d.%d.%d/32", byte(spread>>24), byte(spread>>16), byte(spread>>8)))] = harness.IdExternal
			}
			p.Sync(b)
			if c.selected {
				p.Ingress(b, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsTCP80})
			}
			measureConnections(p, b)
		})
	}
}

// measureConnections opens b.N connections from PodB to PodA.
func measureConnections(p *harness.Policy, b *testing.B) {
	const different, piece = 20000, 250
	reader, err := p.D.Events.Reader()
	if err != nil {
		b.Fatal(err)
	}
	defer reader.Close()
	var sums []time.Duration
	sum := time.Duration(0)
	for i := range b.N {
		client, server := harness.End{Member: fixtures.PodB, Port: uint16(40000 + i%different)}.At(4), harness.End{Member: fixtures.PodA, Port: 80}.At(4)
		there := func(flags byte) harness.Run {
			return harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, flags))
		}
		back := func(flags byte) harness.Run {
			return harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, flags))
		}
		p.Netns.Do(func() {
			for _, in := range []harness.Run{
				there(fixtures.TcpSYN), back(fixtures.TcpSYN | fixtures.TcpACK), there(fixtures.TcpACK), there(fixtures.TcpACK | fixtures.TcpPSH), back(fixtures.TcpACK | fixtures.TcpPSH),
				there(fixtures.TcpFIN | fixtures.TcpACK), back(fixtures.TcpFIN | fixtures.TcpACK), there(fixtures.TcpACK),
			} {
				program, failure := p.Program(in.Program)
				if failure != nil {
					err = failure
					return
				}
				code, took, failure := harness.Repeat(program, in.In, &harness.Skb{Ifindex: uint32(p.Netns.Devices[in.Device])}, 1)
				if failure == nil && code != harness.VerdictRedirect {
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

// BenchmarkPolicySockets measures the socket lookup for a packet without a conntrack entry: a pod without a known
// namespace, one without a matching socket, one that has initiated the connection (two lookups), one that has
// accepted it (one), and a datagram that the rules deny.
func BenchmarkPolicySockets(b *testing.B) {
	for _, family := range fixtures.Families {
		pod, peer := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 80}.At(family)
		last := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpRST).Ttl(255)) // creates no entry, so each one is evaluated
		for _, c := range []struct {
			name    string
			run     harness.Run
			verdict harness.Verdict
			prepare func(b *testing.B, s sockets)
		}{
			{"no-sockets", last, harness.VerdictRedirect, nil},
			{"no-socket", last, harness.VerdictRedirect, func(*testing.B, sockets) {}},
			{"opened", last, harness.VerdictRedirect, func(b *testing.B, s sockets) { s.connected(b, pod, peer) }},
			{"accepted", last, harness.VerdictRedirect, func(b *testing.B, s sockets) { s.accepted(b, pod, peer) }},
			{"datagram,no-sockets", harness.WireBrings(harness.Datagram(fixtures.FromWire(), peer, pod).Ttl(255)), harness.VerdictDrop, nil},
			{"datagram,no-socket", harness.WireBrings(harness.Datagram(fixtures.FromWire(), peer, pod).Ttl(255)), harness.VerdictDrop, func(*testing.B, sockets) {}},
		} {
			b.Run(fmt.Sprintf("%s/IPv%d", c.name, family), func(b *testing.B) {
				p := harness.NewPolicy(b, config.Datapath{EBPFRouting: true})
				p.Ingress(b, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
				if c.verdict == harness.VerdictRedirect {
					p.Ingress(b, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery})
				}
				if c.prepare != nil {
					c.prepare(b, newPodSockets(p, b, fixtures.PodA, "blpoda", family))
				}
				p.Measure(b, c.run, c.verdict)
			})
		}
	}
}
