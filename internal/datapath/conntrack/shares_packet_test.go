package conntrack_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// smallTable has a table of sessions in which 16 pods have a share each, of four rings of 16.
var smallTable = config.Datapath{EBPFRouting: true, Sizes: config.Sizes{Conntrack: tableSize}}

const (
	tableSize = 1024
	smallRing = tableSize / 16 / 4
)

// everything lets PodA and PodA2 do what they open themselves, and nothing that others open.
func isolate(p *harness.Policy, tb testing.TB) {
	tb.Helper()
	for _, pod := range []fixtures.Member{fixtures.PodA, fixtures.PodA2} {
		p.Govern(tb, pod, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery, harness.IdA: harness.PortsEvery, harness.IdA2: harness.PortsEvery}))
	}
}

// flood has many sessions begin with one packet each. Those that are young move on, and the permits are gone.
func flood(p *harness.Policy, t *testing.T, n int, packet func(port uint16) harness.Run) {
	t.Helper()
	p.Netns.Do(func() {
		for i := range n {
			if got, err := p.Run(packet(uint16(1024 + i))); err != nil || got.Verdict == harness.VerdictDrop {
				t.Errorf("packet %d of the flood: %v, %v", i, got.Verdict, err)
				return
			}
		}
	})
	if err := p.D.Conntrack.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := p.D.Objects.Generation.Advance(); err != nil {
		t.Fatal(err)
	}
}

// conversation is one of UDP, as its two ends send it.
type conversation struct{ question, answer harness.Run }

func converse(p *harness.Policy, t *testing.T, c conversation) {
	t.Helper()
	for range 2 { // so it lasts
		p.Allows(t, "question", c.question)
		p.Allows(t, "answer", c.answer)
		if err := p.D.Conntrack.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := p.D.Objects.Generation.Advance(); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever another pod opens, and whatever others open to a pod, the answers to what it has asked get in: their session is not evicted, be
// it one that has only begun or one that lasts. A pod that has more than its share loses its own, the oldest first.
func TestSessionsOfOtherPods(t *testing.T) {
	p := harness.NewPolicy(t, smallTable)
	isolate(p, t)
	harness.EachFamily(t, func(t *testing.T, family int) {
		dns := harness.End{Member: fixtures.PodB, Port: 53}.At(family)
		ask := func(device func(fixtures.Packet) harness.Run, pod fixtures.Member, port uint16) conversation {
			from := harness.End{Member: pod, Port: port}.At(family)
			return conversation{device(harness.Datagram(fixtures.FromPod(), from, dns)), harness.WireBrings(harness.Datagram(fixtures.FromWire(), dns, from))}
		}
		for _, c := range []struct {
			name  string
			flood func(port uint16) harness.Run
		}{
			{"to elsewhere", func(port uint16) harness.Run {
				return harness.Pod2Sends(harness.Datagram(fixtures.FromPod(), harness.End{Member: fixtures.PodA2, Port: port}.At(family), dns))
			}},
			{"opened with TCP", func(port uint16) harness.Run {
				return harness.Pod2Sends(harness.SegmentOf(fixtures.FromPod(), harness.End{Member: fixtures.PodA2, Port: port}.At(family), harness.End{Member: fixtures.PodB, Port: 80}.At(family), fixtures.TcpSYN))
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				p.Forget(t)
				lasts, begins := ask(harness.PodSends, fixtures.PodA, 40000), ask(harness.PodSends, fixtures.PodA, 40001)
				own := ask(harness.Pod2Sends, fixtures.PodA2, 40002)
				converse(p, t, lasts)
				p.Allows(t, "question", begins.question)
				p.Allows(t, "the flooding pod's own question", own.question)
				if err := p.D.Conntrack.Flush(); err != nil {
					t.Fatal(err)
				}
				flood(p, t, 3*tableSize, c.flood)
				p.Allows(t, "an answer of a session that lasts", lasts.answer)
				p.Allows(t, "an answer of a session that has only begun", begins.answer)
				p.Denies(t, "an answer to the flooding pod's own oldest question", own.answer, harness.NoIngress)
				if n := len(p.Entries(t)); n > 2+smallRing {
					t.Errorf("%d sessions are kept, of which the flood may have %d", n, smallRing)
				}
			})
		}
	})
}

// What comes from outside is charged to who receives it, beside what that one has opened.
func TestSessionsFromOutside(t *testing.T) {
	p := harness.NewPolicy(t, smallTable)
	p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{
		{Set: harness.Rules, Identity: harness.IdWorld}: harness.PortsUDP, {Set: harness.RulesOf2, Identity: harness.IdB}: harness.PortsEvery,
	})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Forget(t)
		from, dns := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 53}.At(family)
		own := conversation{harness.PodSends(harness.Datagram(fixtures.FromPod(), from, dns)), harness.WireBrings(harness.Datagram(fixtures.FromWire(), dns, from))}
		client, served := harness.End{Member: fixtures.External, Port: 50000}.At(family), harness.End{Member: fixtures.PodA, Port: 53}.At(family)
		others := conversation{harness.WireBrings(harness.Datagram(fixtures.FromWire(), client, served)), harness.PodSends(harness.Datagram(fixtures.FromPod(), served, client))}
		p.Allows(t, "question", own.question)
		converse(p, t, others)
		flood(p, t, 3*tableSize, func(port uint16) harness.Run {
			return harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.External, Port: port}.At(family), served))
		})
		p.Allows(t, "an answer to the pod", own.answer)
		p.Allows(t, "an answer of the pod, to a client that it has long had", others.answer)
	})
}

// A client with however many sessions that last evicts others' with the same pod in an eighth of the ring only.
func TestSessionsOfOtherClients(t *testing.T) {
	p := harness.NewPolicy(t, smallTable)
	p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{
		{Set: harness.Rules, Identity: harness.IdWorld}: harness.PortsUDP, {Set: harness.Rules, Identity: harness.IdB}: harness.PortsUDP,
	})
	served := harness.End{Member: fixtures.PodA, Port: 53}.At(4)
	asks := func(client netip.AddrPort) conversation {
		return conversation{harness.WireBrings(harness.Datagram(fixtures.FromWire(), client, served)), harness.PodSends(harness.Datagram(fixtures.FromPod(), served, client))}
	}
	var others []conversation
	client := fixtures.External.V4
	for range smallRing {
		client = client.Next()
		c := asks(netip.AddrPortFrom(client, 50000))
		converse(p, t, c)
		others = append(others, c)
	}
	for port := range uint16(4 * smallRing) {
		converse(p, t, asks(netip.AddrPortFrom(fixtures.PodB.V4, 40000+port)))
	}
	if lost := unanswered(p, t, others); lost > smallRing/8 {
		t.Errorf("%d of %d sessions of other clients are lost to one that has many", lost, smallRing)
	}
	var neighbours []conversation // they share a prefix, and yet no part
	for range 8 {
		client = client.Next()
		c := asks(netip.AddrPortFrom(client, 50000))
		converse(p, t, c)
		neighbours = append(neighbours, c)
	}
	if lost := unanswered(p, t, neighbours); lost > len(neighbours)/2 {
		t.Errorf("%d of %d sessions of new clients are lost to each other", lost, len(neighbours))
	}
}

// unanswered says of how many conversations the answer is dropped.
func unanswered(p *harness.Policy, tb testing.TB, all []conversation) (lost int) {
	tb.Helper()
	p.Netns.Do(func() {
		for _, c := range all {
			if got, err := p.Run(c.answer); err != nil {
				tb.Error(err)
			} else if got.Verdict == harness.VerdictDrop {
				lost++
			}
		}
	})
	return lost
}

// A pod that has more sessions that last than its share loses what is over first, and then what had no packet for the longest time of a few.
func TestSessionsThatLast(t *testing.T) {
	p := harness.NewPolicy(t, smallTable)
	isolate(p, t)
	dns := harness.End{Member: fixtures.PodB, Port: 53}.At(4)
	ask := func(port uint16) conversation {
		from := harness.End{Member: fixtures.PodA, Port: port}.At(4)
		return conversation{harness.PodSends(harness.Datagram(fixtures.FromPod(), from, dns)), harness.WireBrings(harness.Datagram(fixtures.FromWire(), dns, from))}
	}
	const first = 30000
	for port := range uint16(smallRing) {
		converse(p, t, ask(first+port))
	}
	var quiet bpf.Tuple // of the first four, the second had no packet for longest
	for port := range uint16(smallRing) {
		key, _ := bpf.ConntrackKey(bpf.Tuple{
			Source: bpf.AddressOf(fixtures.PodA.V4), Destination: bpf.AddressOf(fixtures.PodB.V4), SourcePort: bpf.NetworkOrder(first + port), DestinationPort: bpf.NetworkOrder(53), Protocol: fixtures.ProtoUDP,
		})
		var s bpf.CtEntry
		if err := p.D.Objects.Maps.Conntrack.Lookup(key, &s); err != nil {
			t.Fatalf("session %d: %v", port, err)
		}
		s.Seen = uint64(time.Second) // a machine may have booted just now
		if port == 1 {
			quiet, s.Seen = key, uint64(time.Millisecond)
		}
		if err := p.D.Objects.Maps.Conntrack.Put(key, s); err != nil {
			t.Fatal(err)
		}
	}
	converse(p, t, ask(first+smallRing))
	var s bpf.CtEntry
	if err := p.D.Objects.Maps.Conntrack.Lookup(quiet, &s); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("the session that had no packet for the longest time: %v", err)
	}
	for port := range uint16(smallRing + 1) {
		if port != 1 {
			p.Allows(t, "an answer", ask(first+port).answer)
		}
	}
}

// Who gets the address of a pod that is gone inherits no session of it: neither what it has opened nor what was opened to it, young or not,
// whether there are few sessions or many.
func TestForgetPod(t *testing.T) {
	p := harness.NewPolicy(t, smallTable)
	isolate(p, t)
	for name, many := range map[string]time.Duration{"few": 0, "many": time.Hour} {
		p.D.Conntrack.SetMany(time.Now().Add(many))
		t.Run(name, func(t *testing.T) { testForgetPod(t, p) })
	}
}

func testForgetPod(t *testing.T, p *harness.Policy) {
	harness.EachFamily(t, func(t *testing.T, family int) {
		for _, settled := range []bool{false, true} {
			p.Forget(t)
			dns := harness.End{Member: fixtures.PodB, Port: 53}.At(family)
			gone, stays := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodA2, Port: 40000}.At(family)
			p.Allows(t, "question", harness.PodSends(harness.Datagram(fixtures.FromPod(), gone, dns)))
			p.Allows(t, "question of another pod", harness.Pod2Sends(harness.Datagram(fixtures.FromPod(), stays, dns)))
			if settled {
				if err := p.D.Conntrack.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.D.Conntrack.Forget(fixtures.PodA.Addr(family)); err != nil {
				t.Fatal(err)
			}
			if err := p.D.Objects.Generation.Advance(); err != nil {
				t.Fatal(err)
			}
			p.Denies(t, "an answer to who is gone", harness.WireBrings(harness.Datagram(fixtures.FromWire(), dns, gone)), harness.NoIngress)
			p.Allows(t, "an answer to the other one", harness.WireBrings(harness.Datagram(fixtures.FromWire(), dns, stays)))
			err := table.Read(p.D.Objects.Maps.CtSlots, func(at *bpf.CtSlot, _ *bpf.Tuple) {
				if at.Pod == bpf.AddressOf(fixtures.PodA.Addr(family)) {
					t.Errorf("slot %#x is still charged to who is gone", at.Slot)
				}
			})
			if err != nil {
				t.Error(err)
			}
			if err := p.D.Objects.Maps.CtShares.Lookup(bpf.AddressOf(fixtures.PodA.Addr(family)), &bpf.CtShare{}); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("share of who is gone: %v", err)
			}
		}
	})
}

// Where there are more pods the shares are smaller, and a pod loses what is beyond its own.
func TestSessionsAreShared(t *testing.T) {
	p := harness.NewPolicy(t, smallTable)
	isolate(p, t)
	dns := harness.End{Member: fixtures.PodB, Port: 53}.At(4)
	flood(p, t, smallRing, func(port uint16) harness.Run {
		return harness.PodSends(harness.Datagram(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: port}.At(4), dns))
	})
	if n := len(p.Entries(t)); n != smallRing {
		t.Fatalf("%d sessions, expected %d", n, smallRing)
	}
	for i := range byte(32) {
		if err := p.D.Objects.Maps.CtShares.Put(bpf.AddressOf(netip.AddrFrom4([4]byte{10, 1, 200, i})), bpf.CtShare{}); err != nil {
			t.Fatal(err)
		}
	}
	now, err := table.Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.D.Conntrack.Expire(now, nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(p.Entries(t)); n != smallRing/4 { // 33 pods: 64 shares
		t.Errorf("%d sessions of a pod that may have %d", n, smallRing/4)
	}
}
