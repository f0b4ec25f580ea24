package datapath

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/policy"
)

// smallTable has a table of sessions in which 16 pods have a share each, of four rings of 16.
var smallTable = Config{EBPFRouting: true, Sizes: Sizes{Sessions: tableSize}}

const (
	tableSize = 1024
	smallRing = tableSize / 16 / 4
)

// everything lets podA and podA2 do what they open themselves, and nothing that others open.
func (p *policyRig) isolate(tb testing.TB) {
	tb.Helper()
	for _, pod := range []member{podA, podA2} {
		p.govern(tb, pod, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsEvery, idA: portsEvery, idA2: portsEvery}))
	}
}

// flood has many sessions begin with one packet each. Those that are young move on, and the permits are gone.
func (p *policyRig) flood(t *testing.T, n int, packet func(port uint16) run) {
	t.Helper()
	p.stage.do(func() {
		for i := range n {
			if got, err := p.run(packet(uint16(1024 + i))); err != nil || got.verdict == verdictDrop {
				t.Errorf("packet %d of the flood: %v, %v", i, got.verdict, err)
				return
			}
		}
	})
	if err := p.d.Sessions.settleYoung(); err != nil {
		t.Fatal(err)
	}
	if err := p.d.objects.generation.advance(); err != nil {
		t.Fatal(err)
	}
}

// conversation is one of UDP, as its two ends send it.
type conversation struct{ question, answer run }

func (p *policyRig) converse(t *testing.T, c conversation) {
	t.Helper()
	for range 2 { // so it lasts
		p.allows(t, "question", c.question)
		p.allows(t, "answer", c.answer)
		if err := p.d.Sessions.settleYoung(); err != nil {
			t.Fatal(err)
		}
		if err := p.d.objects.generation.advance(); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever another pod opens, and whatever others open to a pod, the answers to what it has asked get in: their session is not evicted, be
// it one that has only begun or one that lasts. A pod that has more than its share loses its own, the oldest first.
func TestSessionsOfOtherPods(t *testing.T) {
	p := newPolicyRig(t, smallTable)
	p.isolate(t)
	eachFamily(t, func(t *testing.T, family int) {
		dns := end{podB, 53}.at(family)
		ask := func(device func(packet) run, pod member, port uint16) conversation {
			from := end{pod, port}.at(family)
			return conversation{device(datagram(fromPod(), from, dns)), wireBrings(datagram(fromWire(), dns, from))}
		}
		for _, c := range []struct {
			name  string
			flood func(port uint16) run
		}{
			{"to elsewhere", func(port uint16) run { return pod2Sends(datagram(fromPod(), end{podA2, port}.at(family), dns)) }},
			{"opened with TCP", func(port uint16) run {
				return pod2Sends(segmentOf(fromPod(), end{podA2, port}.at(family), end{podB, 80}.at(family), tcpSYN))
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				p.forget(t)
				lasts, begins := ask(podSends, podA, 40000), ask(podSends, podA, 40001)
				own := ask(pod2Sends, podA2, 40002)
				p.converse(t, lasts)
				p.allows(t, "question", begins.question)
				p.allows(t, "the flooding pod's own question", own.question)
				if err := p.d.Sessions.settleYoung(); err != nil {
					t.Fatal(err)
				}
				p.flood(t, 3*tableSize, c.flood)
				p.allows(t, "an answer of a session that lasts", lasts.answer)
				p.allows(t, "an answer of a session that has only begun", begins.answer)
				p.denies(t, "an answer to the flooding pod's own oldest question", own.answer, noIngress)
				if n := len(p.sessions(t)); n > 2+smallRing {
					t.Errorf("%d sessions are kept, of which the flood may have %d", n, smallRing)
				}
			})
		}
	})
}

// What comes from outside is charged to who receives it, beside what that one has opened.
func TestSessionsFromOutside(t *testing.T) {
	p := newPolicyRig(t, smallTable)
	p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{
		{Set: rules, Identity: idWorld}: portsUDP, {Set: rulesOf2, Identity: idB}: portsEvery,
	})
	eachFamily(t, func(t *testing.T, family int) {
		p.forget(t)
		from, dns := end{podA, 40000}.at(family), end{podB, 53}.at(family)
		own := conversation{podSends(datagram(fromPod(), from, dns)), wireBrings(datagram(fromWire(), dns, from))}
		client, served := end{world, 50000}.at(family), end{podA, 53}.at(family)
		others := conversation{wireBrings(datagram(fromWire(), client, served)), podSends(datagram(fromPod(), served, client))}
		p.allows(t, "question", own.question)
		p.converse(t, others)
		p.flood(t, 3*tableSize, func(port uint16) run { return wireBrings(datagram(fromWire(), end{world, port}.at(family), served)) })
		p.allows(t, "an answer to the pod", own.answer)
		p.allows(t, "an answer of the pod, to a client that it has long had", others.answer)
	})
}

// A client with however many sessions that last evicts others' with the same pod in an eighth of the ring only.
func TestSessionsOfOtherClients(t *testing.T) {
	p := newPolicyRig(t, smallTable)
	p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{
		{Set: rules, Identity: idWorld}: portsUDP, {Set: rules, Identity: idB}: portsUDP,
	})
	served := end{podA, 53}.at(4)
	asks := func(client netip.AddrPort) conversation {
		return conversation{wireBrings(datagram(fromWire(), client, served)), podSends(datagram(fromPod(), served, client))}
	}
	var others []conversation
	client := world.v4
	for range smallRing {
		client = client.Next()
		c := asks(netip.AddrPortFrom(client, 50000))
		p.converse(t, c)
		others = append(others, c)
	}
	for port := range uint16(4 * smallRing) {
		p.converse(t, asks(netip.AddrPortFrom(podB.v4, 40000+port)))
	}
	if lost := p.unanswered(t, others); lost > smallRing/8 {
		t.Errorf("%d of %d sessions of other clients are lost to one that has many", lost, smallRing)
	}
	var neighbours []conversation // they share a prefix, and yet no part
	for range 8 {
		client = client.Next()
		c := asks(netip.AddrPortFrom(client, 50000))
		p.converse(t, c)
		neighbours = append(neighbours, c)
	}
	if lost := p.unanswered(t, neighbours); lost > len(neighbours)/2 {
		t.Errorf("%d of %d sessions of new clients are lost to each other", lost, len(neighbours))
	}
}

// unanswered says of how many conversations the answer is dropped.
func (p *policyRig) unanswered(tb testing.TB, all []conversation) (lost int) {
	tb.Helper()
	p.stage.do(func() {
		for _, c := range all {
			if got, err := p.run(c.answer); err != nil {
				tb.Error(err)
			} else if got.verdict == verdictDrop {
				lost++
			}
		}
	})
	return lost
}

// A pod that has more sessions that last than its share loses what is over first, and then what had no packet for the longest time of a few.
func TestSessionsThatLast(t *testing.T) {
	p := newPolicyRig(t, smallTable)
	p.isolate(t)
	dns := end{podB, 53}.at(4)
	ask := func(port uint16) conversation {
		from := end{podA, port}.at(4)
		return conversation{podSends(datagram(fromPod(), from, dns)), wireBrings(datagram(fromWire(), dns, from))}
	}
	const first = 30000
	for port := range uint16(smallRing) {
		p.converse(t, ask(first+port))
	}
	var quiet bpfTuple // of the first four, the second had no packet for longest
	for port := range uint16(smallRing) {
		key, _ := sessionKey(bpfTuple{
			Source: addressOf(podA.v4), Destination: addressOf(podB.v4), SourcePort: networkOrder(first + port), DestinationPort: networkOrder(53), Protocol: protoUDP,
		})
		var s bpfCtEntry
		if err := p.d.objects.maps.Conntrack.Lookup(key, &s); err != nil {
			t.Fatalf("session %d: %v", port, err)
		}
		s.Seen = uint64(time.Second) // a machine may have booted just now
		if port == 1 {
			quiet, s.Seen = key, uint64(time.Millisecond)
		}
		if err := p.d.objects.maps.Conntrack.Put(key, s); err != nil {
			t.Fatal(err)
		}
	}
	p.converse(t, ask(first+smallRing))
	var s bpfCtEntry
	if err := p.d.objects.maps.Conntrack.Lookup(quiet, &s); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("the session that had no packet for the longest time: %v", err)
	}
	for port := range uint16(smallRing + 1) {
		if port != 1 {
			p.allows(t, "an answer", ask(first+port).answer)
		}
	}
}

// Who gets the address of a pod that is gone inherits no session of it: neither what it has opened nor what was opened to it, young or not,
// whether there are few sessions or many.
func TestForgetPod(t *testing.T) {
	p := newPolicyRig(t, smallTable)
	p.isolate(t)
	for name, many := range map[string]time.Duration{"few": 0, "many": time.Hour} {
		p.d.Sessions.setMany(time.Now().Add(many))
		t.Run(name, func(t *testing.T) { testForgetPod(t, p) })
	}
}

func testForgetPod(t *testing.T, p *policyRig) {
	eachFamily(t, func(t *testing.T, family int) {
		for _, settled := range []bool{false, true} {
			p.forget(t)
			dns := end{podB, 53}.at(family)
			gone, stays := end{podA, 40000}.at(family), end{podA2, 40000}.at(family)
			p.allows(t, "question", podSends(datagram(fromPod(), gone, dns)))
			p.allows(t, "question of another pod", pod2Sends(datagram(fromPod(), stays, dns)))
			if settled {
				if err := p.d.Sessions.settleYoung(); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.d.Sessions.Forget(podA.addr(family)); err != nil {
				t.Fatal(err)
			}
			if err := p.d.objects.generation.advance(); err != nil {
				t.Fatal(err)
			}
			p.denies(t, "an answer to who is gone", wireBrings(datagram(fromWire(), dns, gone)), noIngress)
			p.allows(t, "an answer to the other one", wireBrings(datagram(fromWire(), dns, stays)))
			err := readAll(p.d.objects.maps.CtSlots, func(at *bpfCtSlot, _ *bpfTuple) {
				if at.Pod == addressOf(podA.addr(family)) {
					t.Errorf("slot %#x is still charged to who is gone", at.Slot)
				}
			})
			if err != nil {
				t.Error(err)
			}
			if err := p.d.objects.maps.CtShares.Lookup(addressOf(podA.addr(family)), &bpfCtShare{}); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("share of who is gone: %v", err)
			}
		}
	})
}

// Where there are more pods the shares are smaller, and a pod loses what is beyond its own.
func TestSessionsAreShared(t *testing.T) {
	p := newPolicyRig(t, smallTable)
	p.isolate(t)
	dns := end{podB, 53}.at(4)
	p.flood(t, smallRing, func(port uint16) run { return podSends(datagram(fromPod(), end{podA, port}.at(4), dns)) })
	if n := len(p.sessions(t)); n != smallRing {
		t.Fatalf("%d sessions, expected %d", n, smallRing)
	}
	for i := range byte(32) {
		if err := p.d.objects.maps.CtShares.Put(addressOf(netip.AddrFrom4([4]byte{10, 1, 200, i})), bpfCtShare{}); err != nil {
			t.Fatal(err)
		}
	}
	now, err := Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.d.Sessions.Expire(now, nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(p.sessions(t)); n != smallRing/4 { // 33 pods: 64 shares
		t.Errorf("%d sessions of a pod that may have %d", n, smallRing/4)
	}
}
