package datapath

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packetCase is one packet through one program, and everything that may come of it.
type packetCase struct {
	name string
	run
	verdict verdict
	// out is the packet afterwards; nil: the very bytes that went in.
	out []byte
	// notFirst has the packet run once before, in the same second: see inSecond.
	notFirst bool
	// reason of a drop; it must be the only counter that moves.
	reason DropReason
}

func passes(name string, in run) packetCase {
	return packetCase{name: name, run: in, verdict: verdictNext}
}

func drops(name string, in run, reason uint32) packetCase {
	return packetCase{name: name, run: in, verdict: verdictDrop, reason: DropReason(reason)}
}

// delivered is a packet that goes straight into a pod: with the MACs of the pod's device, one hop less.
func delivered(name string, in run, p packet, pod member) packetCase {
	in.in = p.bytes()
	return packetCase{name: name, run: in, verdict: verdictRedirect, out: p.macs(pod.gateway, pod.mac).ttl(p.hops - 1).bytes()}
}

func (r *rig) check(t *testing.T, cases []packetCase) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.name] {
			t.Fatalf("two cases are named %q", c.name)
		}
		seen[c.name] = true
		t.Run(c.name, func(t *testing.T) { r.checkOne(t, c) })
	}
}

func (r *rig) checkOne(t *testing.T, c packetCase) {
	t.Helper()
	want := r.counters(t)
	if c.verdict == verdictDrop {
		key := c.program + " " + c.reason.String()
		d := want[key]
		want[key] = Drop{Program: c.program, Reason: c.reason, Packets: d.Packets + 1, Bytes: d.Bytes + uint64(len(c.in))}
	}
	var got outcome
	var err error
	if c.notFirst {
		inSecond(t, func() {
			r.stage.do(func() { _, _ = r.run(c.run) })
			r.stage.do(func() { got, err = r.run(c.run) })
		})
	} else {
		r.stage.do(func() { got, err = r.run(c.run) })
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, layers(c.in))
	}
	if got.verdict != c.verdict {
		t.Errorf("verdict %s, expected %s\n%s", got.verdict, c.verdict, layers(c.in))
	}
	out := c.out
	if out == nil {
		out = c.in
	}
	samePacket(t, out, got.out)
	if got.mark != c.mark {
		t.Errorf("mark %#x, expected %#x", got.mark, c.mark)
	}
	if diff := cmp.Diff(want, r.counters(t)); diff != "" {
		t.Errorf("drop counters (-expected +got):\n%s", diff)
	}
}

// each runs f for both families and every transport protocol, with a name like "IPv4 TCP" and a function
// that puts the transport header on a packet.
func each(f func(name string, family int, transport func(packet) packet)) {
	for _, family := range []int{4, 6} {
		for _, transport := range []struct {
			name string
			put  func(packet) packet
		}{
			{"TCP", func(p packet) packet { return p.tcp(31337, 80) }},
			{"UDP", func(p packet) packet { return p.udp(31337, 53) }},
			{"ICMP", packet.echo},
		} {
			f(fmt.Sprintf("IPv%d %s", family, transport.name), family, func(p packet) packet {
				return transport.put(p).payload("hi")
			})
		}
	}
}
