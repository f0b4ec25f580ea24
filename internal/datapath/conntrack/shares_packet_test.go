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

// smallTable has a conntrack table in which 16 pods have a share each, of four rings of 16.
var smallTable = config.Datapath{EBPFRouting: true, Sizes: config.Sizes{Conntrack: tableSize}}

const (
	tableSize = 1024
	smallRing = tableSize / 16 / 4
)

// isolate allows PodA and PodA2 what they initiate, and nothing that others initiate.
func isolate(p *harness.Policy, tb testing.TB) {
	tb.Helper()
	for _, pod := range []fixtures.Member{fixtures.PodA, fixtures.PodA2} {
		p.Govern(tb, pod, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery, harness.IdA: harness.PortsEvery, harness.IdA2: harness.PortsEvery}))
	}
}

// flood creates many connections with one packet each, then flushes `ct_new` and the verdict caches.
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

// conversation is a UDP exchange, as its two ends send it.
type conversation struct{ request, reply harness.Run }

func converse(p *harness.Policy, t *testing.T, c conversation) {
	t.Helper()
	for range 2 { // so it is assured
		p.Allows(t, "request", c.request)
		p.Allows(t, "reply", c.reply)
		if err := p.D.Conntrack.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := p.D.Objects.Generation.Advance(); err != nil {
			t.Fatal(err)
		}
	}
}

// Neither connections of another pod nor connections to a pod evict the entries of what the pod has requested, new or
// assured: replies still pass. A pod that exceeds its share loses its own entries, the oldest first.
func TestEntriesOfOtherPods(t *testing.T) {
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
			{"to a remote pod", func(port uint16) harness.Run {
				return harness.Pod2Sends(harness.Datagram(fixtures.FromPod(), harness.End{Member: fixtures.PodA2, Port: port}.At(family), dns))
			}},
			{"opened with TCP", func(port uint16) harness.Run {
				return harness.Pod2Sends(harness.SegmentOf(fixtures.FromPod(), harness.End{Member: fixtures.PodA2, Port: port}.At(family), harness.End{Member: fixtures.PodB, Port: 80}.At(family), fixtures.TcpSYN))
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				p.ClearVerdicts(t)
				assured, recent := ask(harness.PodSends, fixtures.PodA, 40000), ask(harness.PodSends, fixtures.PodA, 40001)
				own := ask(harness.Pod2Sends, fixtures.PodA2, 40002)
				converse(p, t, assured)
				p.Allows(t, "request", recent.request)
				p.Allows(t, "the flooding pod's own request", own.request)
				if err := p.D.Conntrack.Flush(); err != nil {
					t.Fatal(err)
				}
				flood(p, t, 3*tableSize, c.flood)
				p.Allows(t, "a reply of an assured connection", assured.reply)
				p.Allows(t, "a reply of a new connection", recent.reply)
				p.Denies(t, "a reply to the flooding pod's own oldest request", own.reply, harness.NoIngress)
				if n := len(p.Entries(t)); n > 2+smallRing {
					t.Errorf("%d entries are retained, of which the flood may have %d", n, smallRing)
				}
			})
		}
	})
}

// Inbound connections are charged to the receiving pod, separately from the connections that it initiates.
func TestEntriesOfExternalClients(t *testing.T) {
	p := harness.NewPolicy(t, smallTable)
	p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{
		{Set: harness.Rules, Identity: harness.IdExternal}: harness.PortsUDP, {Set: harness.RulesOf2, Identity: harness.IdB}: harness.PortsEvery,
	})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.ClearVerdicts(t)
		from, dns := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 53}.At(family)
		own := conversation{harness.PodSends(harness.Datagram(fixtures.FromPod(), from, dns)), harness.WireBrings(harness.Datagram(fixtures.FromWire(), dns, from))}
		client, served := harness.End{Member: fixtures.External, Port: 50000}.At(family), harness.End{Member: fixtures.PodA, Port: 53}.At(family)
		others := conversation{harness.WireBrings(harness.Datagram(fixtures.FromWire(), client, served)), harness.PodSends(harness.Datagram(fixtures.FromPod(), served, client))}
		p.Allows(t, "request", own.request)
		converse(p, t, others)
		flood(p, t, 3*tableSize, func(port uint16) harness.Run {
			return harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.External, Port: port}.At(family), served))
		})
		p.Allows(t, "a reply to the pod", own.reply)
		p.Allows(t, "the pod's reply to an earlier client", others.reply)
	})
}

// A client with many assured connections to a pod evicts those of other clients in an eighth of the ring only.
func TestEntriesOfOtherClients(t *testing.T) {
	p := harness.NewPolicy(t, smallTable)
	p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{
		{Set: harness.Rules, Identity: harness.IdExternal}: harness.PortsUDP, {Set: harness.Rules, Identity: harness.IdB}: harness.PortsUDP,
	})
	served := harness.End{Member: fixtures.PodA, Port: 53}.At(4)
	ask := func(client netip.AddrPort) conversation {
		return conversation{harness.WireBrings(harness.Datagram(fixtures.FromWire(), client, served)), harness.PodSends(harness.Datagram(fixtures.FromPod(), served, client))}
	}
	var others []conversation
	client := fixtures.External.V4
	for range smallRing {
		client = client.Next()
		c := ask(netip.AddrPortFrom(client, 50000))
		converse(p, t, c)
		others = append(others, c)
	}
	for port := range uint16(4 * smallRing) {
		converse(p, t, ask(netip.AddrPortFrom(fixtures.PodB.V4, 40000+port)))
	}
	if lost := droppedReplies(p, t, others); lost > smallRing/8 {
		t.Errorf("%d of %d entries of other clients are evicted by one that has many", lost, smallRing)
	}
	var neighbours []conversation // they share a prefix, but no part of the ring
	for range 8 {
		client = client.Next()
		c := ask(netip.AddrPortFrom(client, 50000))
		converse(p, t, c)
		neighbours = append(neighbours, c)
	}
	if lost := droppedReplies(p, t, neighbours); lost > len(neighbours)/2 {
		t.Errorf("%d of %d entries of new clients are evicted by each other", lost, len(neighbours))
	}
}

// droppedReplies counts the conversations whose reply is dropped.
func droppedReplies(p *harness.Policy, tb testing.TB, all []conversation) (lost int) {
	tb.Helper()
	p.Netns.Do(func() {
		for _, c := range all {
			if got, err := p.Run(c.reply); err != nil {
				tb.Error(err)
			} else if got.Verdict == harness.VerdictDrop {
				lost++
			}
		}
	})
	return lost
}

// A pod with more assured connections than its share loses expired entries first, then the longest idle of a few.
func TestLastingEntries(t *testing.T) {
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
	var quiet bpf.Tuple // of the first four, the second is idle for longest
	for port := range uint16(smallRing) {
		key, _ := bpf.ConntrackKey(bpf.Tuple{
			Source: bpf.AddressOf(fixtures.PodA.V4), Destination: bpf.AddressOf(fixtures.PodB.V4), SourcePort: bpf.NetworkOrder(first + port), DestinationPort: bpf.NetworkOrder(53), Protocol: fixtures.ProtoUDP,
		})
		var s bpf.CtEntry
		if err := p.D.Objects.Maps.Conntrack.Lookup(key, &s); err != nil {
			t.Fatalf("entry %d: %v", port, err)
		}
		s.Seen = uint64(time.Second) // the machine may have just booted
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
		t.Errorf("the entry that is idle for longest: %v", err)
	}
	for port := range uint16(smallRing + 1) {
		if port != 1 {
			p.Allows(t, "a reply", ask(first+port).reply)
		}
	}
}

// A pod that reuses an address inherits no entry of it: neither outbound nor inbound, in `ct_new` or `conntrack`,
// with few entries or many.
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
		for _, flushed := range []bool{false, true} {
			p.ClearVerdicts(t)
			dns := harness.End{Member: fixtures.PodB, Port: 53}.At(family)
			gone, other := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodA2, Port: 40000}.At(family)
			p.Allows(t, "request", harness.PodSends(harness.Datagram(fixtures.FromPod(), gone, dns)))
			p.Allows(t, "request of another pod", harness.Pod2Sends(harness.Datagram(fixtures.FromPod(), other, dns)))
			if flushed {
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
			p.Denies(t, "a reply to the deleted pod", harness.WireBrings(harness.Datagram(fixtures.FromWire(), dns, gone)), harness.NoIngress)
			p.Allows(t, "a reply to the other pod", harness.WireBrings(harness.Datagram(fixtures.FromWire(), dns, other)))
			err := table.Read(p.D.Objects.Maps.CtSlots, func(at *bpf.CtSlot, _ *bpf.Tuple) {
				if at.Pod == bpf.AddressOf(fixtures.PodA.Addr(family)) {
					t.Errorf("slot %#x is still charged to the deleted pod", at.Slot)
				}
			})
			if err != nil {
				t.Error(err)
			}
			if err := p.D.Objects.Maps.CtShares.Lookup(bpf.AddressOf(fixtures.PodA.Addr(family)), &bpf.CtShare{}); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("share of the deleted pod: %v", err)
			}
		}
	})
}

// More pods have smaller shares, and a pod loses the entries beyond its share.
func TestEntriesAreShared(t *testing.T) {
	p := harness.NewPolicy(t, smallTable)
	isolate(p, t)
	dns := harness.End{Member: fixtures.PodB, Port: 53}.At(4)
	flood(p, t, smallRing, func(port uint16) harness.Run {
		return harness.PodSends(harness.Datagram(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: port}.At(4), dns))
	})
	if n := len(p.Entries(t)); n != smallRing {
		t.Fatalf("%d entries, expected %d", n, smallRing)
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
		t.Errorf("%d entries of a pod that may have %d", n, smallRing/4)
	}
}
