package harness

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// PacketCase is one packet through one program, with all expected effects.
type PacketCase struct {
	Name string
	Run
	Verdict Verdict
	// out is the packet afterwards; nil: the very bytes that went in.
	Out []byte
	// notFirst has the packet run once before, in the same second: see InSecond.
	NotFirst bool
	// reason of a drop; it must be the only counter that moves.
	reason flow.DropReason
}

func Passes(name string, in Run) PacketCase {
	return PacketCase{Name: name, Run: in, Verdict: VerdictNext}
}

func Drops(name string, in Run, reason uint32) PacketCase {
	return PacketCase{Name: name, Run: in, Verdict: VerdictDrop, reason: flow.DropReason(reason)}
}

// Delivered is a packet that goes straight into a pod: with the MACs of the pod's device, one hop less.
func Delivered(name string, in Run, p fixtures.Packet, pod fixtures.Member) PacketCase {
	in.In = p.Bytes()
	return PacketCase{Name: name, Run: in, Verdict: VerdictRedirect, Out: p.Macs(pod.Gateway, pod.Mac).Ttl(p.Hops - 1).Bytes()}
}

func (r *Harness) Check(t *testing.T, cases []PacketCase) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.Name] {
			t.Fatalf("two cases are named %q", c.Name)
		}
		seen[c.Name] = true
		t.Run(c.Name, func(t *testing.T) { r.CheckOne(t, c) })
	}
}

func (r *Harness) CheckOne(t *testing.T, c PacketCase) {
	t.Helper()
	want := r.Counters(t)
	if c.Verdict == VerdictDrop {
		key := c.Program + " " + c.reason.String()
		d := want[key]
		want[key] = flow.Drop{Program: c.Program, Reason: c.reason, Packets: d.Packets + 1, Bytes: d.Bytes + uint64(len(c.In))}
	}
	var got Outcome
	var err error
	if c.NotFirst {
		InSecond(t, func() {
			r.Netns.Do(func() { _, _ = r.Run(c.Run) })
			r.Netns.Do(func() { got, err = r.Run(c.Run) })
		})
	} else {
		r.Netns.Do(func() { got, err = r.Run(c.Run) })
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, fixtures.Layers(c.In))
	}
	if got.Verdict != c.Verdict {
		t.Errorf("verdict %s, expected %s\n%s", got.Verdict, c.Verdict, fixtures.Layers(c.In))
	}
	out := c.Out
	if out == nil {
		out = c.In
	}
	fixtures.SamePacket(t, out, got.Out)
	if got.Mark != c.Mark {
		t.Errorf("mark %#x, expected %#x", got.Mark, c.Mark)
	}
	if diff := cmp.Diff(want, r.Counters(t)); diff != "" {
		t.Errorf("drop counters (-expected +got):\n%s", diff)
	}
}

// Each runs f for both families and every transport protocol, with a name like "IPv4 TCP" and a function
// that puts the transport header on a packet.
func Each(f func(name string, family int, transport func(fixtures.Packet) fixtures.Packet)) {
	for _, family := range []int{4, 6} {
		for _, transport := range []struct {
			name string
			put  func(fixtures.Packet) fixtures.Packet
		}{
			{"TCP", func(p fixtures.Packet) fixtures.Packet { return p.Tcp(31337, 80) }},
			{"UDP", func(p fixtures.Packet) fixtures.Packet { return p.Udp(31337, 53) }},
			{"ICMP", fixtures.Packet.Echo},
		} {
			f(fmt.Sprintf("IPv%d %s", family, transport.name), family, func(p fixtures.Packet) fixtures.Packet {
				return transport.put(p).Payload("hi")
			})
		}
	}
}
