package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Sessions that last are told of when they begin, when they are answered, and when they end, in the direction of who opened them and with the
// policies that allow them; once each.
func TestFlowsTellOfSessions(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	reader := p.watch(t)
	eachFamily(t, func(t *testing.T, family int) {
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
		syn, ack := segmentOf(fromWire(), client, server, tcpSYN), segmentOf(fromPod(), server, client, tcpSYN|tcpACK)
		size := uint64(len(syn.bytes()))
		event := func(kind flow.Kind, program, device string, flags uint8, there, back uint64) flow.Event {
			return flow.Event{
				Kind: kind, Protocol: protoTCP, TCPFlags: flags, Source: client, Destination: server,
				SourceIdentity: idB, DestinationIdentity: idA, Ingress: theirs, Program: program, Device: p.stage.devices[device],
				Packets: [2]uint64{there, back}, Bytes: [2]uint64{there * size, back * size},
			}
		}
		began := time.Now()
		tells := func(what string, want ...flow.Event) {
			t.Helper()
			got := told(t, reader)
			for i := range got {
				// A tick of the clock is 10 ms at most, but emulated machines miss some.
				if opened := got[i].Opened; opened.Before(began.Add(-time.Second)) || opened.After(got[i].Time) {
					t.Errorf("%s: opened at %s, before %s or after %s", what, opened, began, got[i].Time)
				}
				got[i].Opened = time.Time{}
			}
			if diff := cmp.Diff(want, got, ignoreMeaning); diff != "" {
				t.Errorf("%s (-expected +got):\n%s", what, diff)
			}
		}
		p.allows(t, "SYN", wireBrings(syn))
		first := event(flow.Opened, "", "", 0, 1, 0)
		first.First = true
		tells("SYN", first)
		p.allows(t, "SYN again", wireBrings(syn))
		tells("SYN again")
		p.allows(t, "SYN ACK", podSends(ack))
		tells("SYN ACK", event(flow.Answered, bpfProgFromPod, "blpoda", tcpSYN|tcpACK, 2, 1))
		for range 10 {
			p.allows(t, "data", wireBrings(segmentOf(fromWire(), client, server, tcpACK)))
			p.allows(t, "data back", podSends(segmentOf(fromPod(), server, client, tcpACK)))
		}
		tells("data")
		p.allows(t, "FIN", wireBrings(segmentOf(fromWire(), client, server, tcpFIN|tcpACK)))
		tells("FIN")
		p.allows(t, "FIN back", podSends(segmentOf(fromPod(), server, client, tcpFIN|tcpACK)))
		tells("FIN back", event(flow.Closed, bpfProgFromPod, "blpoda", tcpFIN|tcpACK, 13, 12))
		p.allows(t, "the last ACK", wireBrings(segmentOf(fromWire(), client, server, tcpACK)))
		tells("the last ACK")
		p.forget(t)
	})
}

// What is no longer allowed is told once as revoked, and then as drops, with the identities of both ends.
func TestFlowsTellOfRevoked(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	pinned(t, p.rig)
	reader := p.watch(t)
	client, server := end{podB, 40000}.at(4), end{podA, 80}.at(4)
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), client, server, tcpSYN)))
	p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
	told(t, reader)
	data, began := segmentOf(fromWire(), client, server, tcpACK), time.Now()
	for range 3 {
		p.denies(t, "data", wireBrings(data), noIngress)
	}
	got := told(t, reader)
	// One of drops, but for each second that has passed meanwhile.
	if len(got) < 2 || len(got) > 2+int(time.Since(began)/time.Second) || got[0].Kind != flow.Revoked || got[1].Kind != flow.Dropped {
		t.Fatalf("events %+v, expected that it is revoked and one of drops", got)
	}
	if e := got[0]; e.Source != client || e.Destination != server || e.Packets[0] == 0 {
		t.Errorf("event %+v", e)
	}
	if e := got[1]; e.Reason != "ingress_policy" || e.SourceIdentity != idB || e.DestinationIdentity != idA || e.Source != client || e.Destination != server {
		t.Errorf("event %+v", e)
	}
}

// In the modes that tell of fewer things, sessions are judged and not told of.
func TestFlowsTellOfDropsOnly(t *testing.T) {
	for _, mode := range []FlowMode{FlowsDrops, FlowsOff} {
		p := newPolicyRig(t, Config{EBPFRouting: true, Flows: mode})
		reader := p.watch(t)
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), end{podB, 1}.at(4), end{podA, 80}.at(4), tcpSYN)))
		p.denies(t, "SYN", wireBrings(segmentOf(fromWire(), end{podB, 1}.at(4), end{podA, 81}.at(4), tcpSYN)), noIngress)
		want := 0
		if mode == FlowsDrops {
			want = 1
		}
		if got := told(t, reader); len(got) != want || want > 0 && got[0].Kind != flow.Dropped {
			t.Errorf("mode %d: events %+v, expected %d", mode, got, want)
		}
	}
}

// Pods that no policy selects are told of when all are.
func TestFlowsTellOfAll(t *testing.T) {
	for _, cfg := range []Config{{Policy: true}, {}} {
		cfg.EBPFRouting, cfg.Flows = true, FlowsAll
		r := newRig(t, cfg)
		reader := r.watch(t)
		p := &policyRig{rig: r}
		client, server := end{podB, 40000}.at(4), end{podA, 80}.at(4)
		p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), client, server, tcpSYN)))
		p.allows(t, "SYN ACK", podSends(segmentOf(fromPod(), server, client, tcpSYN|tcpACK)))
		got := told(t, reader)
		if len(got) != 1 || got[0].Kind != flow.Answered || !got[0].First || got[0].Source != client || got[0].Ingress != 0 {
			t.Errorf("%s: events %+v", cfgName(cfg), got)
		}
	}
}

// Of a sample, some sessions are told of and the others not at all; the agent knows which.
func TestFlowsSample(t *testing.T) {
	// Which ones depends on the clock's ticks: their length is no multiple of 3, and there are many of them.
	const sample, sessions = 3, 200
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy, FlowsSample: sample})
	reader := p.watch(t)
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	server := end{podA, 80}.at(4)
	for i := range uint16(sessions) {
		client := end{podB, 40000 + i}.at(4)
		if i%5 == 0 {
			awaitTick(t)
		}
		p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), client, server, tcpSYN)))
		p.allows(t, "SYN ACK", podSends(segmentOf(fromPod(), server, client, tcpSYN|tcpACK)))
		if i%2 == 0 {
			p.allows(t, "RST", wireBrings(segmentOf(fromWire(), client, server, tcpRST|tcpACK)))
		}
	}
	events := map[netip.AddrPort]int{}
	count := func() {
		for _, e := range told(t, reader) {
			events[e.Source]++
		}
	}
	count()
	for i := uint16(1); i < sessions; i += 2 { // of those that go on, the end is told, too
		p.allows(t, "RST", wireBrings(segmentOf(fromWire(), end{podB, 40000 + i}.at(4), server, tcpRST|tcpACK)))
	}
	count()
	told := 0
	ticks := map[time.Duration][2]int{} // of the clock: how many began, and of how many is told
	for _, s := range p.sessions(t) {
		want := 0
		if p.d.Flows.Samples(s) {
			want = 1 + int(s.Source.Port()%2)
			told++
		}
		ticks[s.Opened] = [2]int{ticks[s.Opened][0] + 1, ticks[s.Opened][1] + min(want, 1)}
		if events[s.Source] != want {
			t.Errorf("%d events of the session of %s, opened at %d, expected %d", events[s.Source], s.Source, s.Opened, want)
		}
	}
	if told == 0 || told == sessions {
		t.Errorf("%d of %d sessions are told of", told, sessions)
	}
	together, mixed := 0, false
	for _, n := range ticks {
		if n[0] > 1 {
			together += n[0]
			mixed = mixed || n[1] > 0 && n[1] < n[0]
		}
	}
	if together > sessions/2 && !mixed {
		t.Errorf("of %d sessions that began together all or none are told of: %v", together, ticks)
	}
}

// When nobody reads, sessions begin and end all the same, and what is not told is counted.
func TestFlowsOfSessionsWithoutReader(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	const sessions = 10000
	var got outcome
	var err error
	p.stage.do(func() {
		for i := range uint16(sessions) {
			got, err = p.run(wireBrings(segmentOf(fromWire(), end{podB, 20000 + i}.at(4), end{podA, 80}.at(4), tcpSYN)))
			if err != nil || got.verdict != verdictRedirect {
				return
			}
		}
	})
	if err != nil || got.verdict != verdictRedirect {
		t.Fatalf("verdict %v: %v", got.verdict, err)
	}
	events := uint64(len(told(t, p.watch(t))))
	if lost := p.lost(t)["opened full"]; lost == 0 || events+lost != sessions {
		t.Errorf("%d events and %d lost of %d sessions", events, lost, sessions)
	}
}
