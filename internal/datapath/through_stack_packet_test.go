package datapath

import (
	"net/netip"
	"testing"
)

// throughStack says of a pod of the rig whether its packets go through the host's stack.
func (r *rig) throughStack(tb testing.TB, pod member, yes bool) {
	tb.Helper()
	all, err := r.d.Endpoints.All()
	if err != nil {
		tb.Fatal(err)
	}
	for _, a := range []netip.Addr{pod.v4, pod.v6} {
		e := all[a]
		e.ThroughStack = yes
		if err := r.d.Endpoints.Set(a, e); err != nil {
			tb.Fatal(err)
		}
	}
}

// All that a pod sends which goes through the stack is left to the stack, and its source is checked all the same. A
// second packet meets the decision about the first.
func TestThroughStackFromPod(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := Config{EBPFRouting: true, Masquerade: masquerade}
		t.Run(cfgName(cfg), func(t *testing.T) {
			r := newRig(t, cfg)
			r.throughStack(t, podA, true)
			spoofed := uint32(bpfDropReasonDROP_SPOOFED_SOURCE)
			var cases []packetCase
			each(func(name string, family int, transport func(packet) packet) {
				send := func(src, dst member) run {
					return podSends(transport(fromPod().ip(src.addr(family), dst.addr(family))))
				}
				for what, dst := range map[string]member{
					"a pod here": podA2, "itself": podA, "a pod address that no pod has": ghost, "a pod on another node": podB,
					"a pod on an unresolved node": podC, "another node": nodeB, "its own node": nodeA, "the world": world,
				} {
					cases = append(cases,
						passes(name+" to "+what, send(podA, dst)),
						passes(name+" to "+what+" again", send(podA, dst)),
						drops(name+" spoofed to "+what, send(podA2, dst), spoofed),
					)
				}
			})
			r.check(t, cases)
		})
	}
}

// What others send to such a pod is left to the stack, from this node and from the wire, and nothing else is.
func TestThroughStackToPod(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := Config{EBPFRouting: true, Masquerade: masquerade}
		t.Run(cfgName(cfg), func(t *testing.T) {
			r := newRig(t, cfg)
			r.throughStack(t, podA2, true)
			var cases []packetCase
			each(func(name string, family int, transport func(packet) packet) {
				here := transport(fromPod().ip(podA.addr(family), podA2.addr(family)))
				away := transport(fromPod().ip(podA.addr(family), podB.addr(family)))
				for _, again := range []string{"", " again"} {
					cases = append(cases,
						passes(name+" from a pod here"+again, podSends(here)),
						wired(name+" from a pod here to another node"+again, away),
						arrives(name+" from another node to the other pod"+again, transport(fromWire().ip(podB.addr(family), podA.addr(family)))),
					)
					for what, src := range map[string]member{"a pod on another node": podB, "another node": nodeB, "the world": world} {
						p := transport(fromWire().ip(src.addr(family), podA2.addr(family)))
						cases = append(cases, passes(name+" from "+what+again, wireBrings(p)))
					}
				}
			})
			r.check(t, cases)
		})
	}
}

// The way changes with the table, also between addresses about which a decision was kept.
func TestThroughStackChanges(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	each(func(name string, family int, transport func(packet) packet) {
		here := transport(fromPod().ip(podA.addr(family), podA2.addr(family)))
		brought := transport(fromWire().ip(podB.addr(family), podA2.addr(family)))
		direct := []packetCase{
			delivered(name+" from a pod here, direct", podSends(here), here, podA2),
			delivered(name+" from the wire, direct", wireBrings(brought), brought, podA2),
		}
		r.check(t, direct)
		r.throughStack(t, podA2, true)
		r.check(t, []packetCase{
			passes(name+" from a pod here, through the stack", podSends(here)),
			passes(name+" from the wire, through the stack", wireBrings(brought)),
		})
		r.throughStack(t, podA2, false)
		r.check(t, direct)
	})
}

// The flag comes back from the table as it was written.
func TestThroughStackRoundTrip(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true})
	r.throughStack(t, podA2, true)
	all, err := r.d.Endpoints.All()
	if err != nil {
		t.Fatal(err)
	}
	if !all[podA2.v4].ThroughStack || !all[podA2.v6].ThroughStack || all[podA.v4].ThroughStack {
		t.Errorf("endpoints %v", all)
	}
	if changed, err := r.d.Endpoints.Sync(all); changed != 0 || err != nil {
		t.Errorf("%d endpoints are written again: %v", changed, err)
	}
}
