package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/flow"
)

// watch opens the events of a rig.
func (r *rig) watch(t *testing.T) *FlowReader {
	t.Helper()
	reader, err := r.d.Flows.Reader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	})
	return reader
}

// told gives the events since the last call.
func told(t *testing.T, reader *FlowReader) (all []flow.Event) {
	t.Helper()
	if err := reader.Read(0, func(e flow.Event) { all = append(all, e) }); err != nil {
		t.Fatal(err)
	}
	return all
}

// lost gives the events that were not told, by "kind why".
func (r *rig) lost(t *testing.T) map[string]uint64 {
	t.Helper()
	losses, err := r.d.Flows.Losses()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, l := range losses {
		if l.Events > 0 {
			all[l.Kind.String()+" "+l.Why] = l.Events
		}
	}
	return all
}

// spoofs is a packet that podA sends in the name of another pod, from this port.
func spoofs(port uint16) packet {
	return fromPod().ipv4(podA2.v4, podB.v4).udp(port, 53)
}

// drop runs packets that from_pod has to drop, whatever becomes of their events.
func (r *rig) drop(t *testing.T, packets ...packet) {
	t.Helper()
	r.stage.do(func() {
		for _, p := range packets {
			if got, err := r.run(podSends(p)); err != nil || got.verdict != verdictDrop {
				t.Errorf("verdict %v (%v), expected a drop", got.verdict, err)
				return
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

var ignoreMeaning = cmp.Options{
	cmpopts.IgnoreFields(flow.Event{}, "Time", "Meaning"), cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty(),
}

// Events of drops have of the packet whatever can be read, at the program that dropped it.
func TestFlowsTellOfDrops(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true, Flows: FlowsDrops})
	reader := r.watch(t)
	device := r.stage.devices["blpoda"]
	tcp := func(p packet, flags byte) packet {
		p.transport[13] = flags
		return p
	}
	at := netip.AddrPortFrom
	spoofed, malformed := DropReason(bpfDropReasonDROP_SPOOFED_SOURCE).String(), DropReason(bpfDropReasonDROP_MALFORMED).String()
	shortHeader := fromPod().ipv4(podA.v4, podB.v4).udp(1, 2)
	shortHeader.ihl = 4
	version := fromPod().ipv4(podA.v4, podB.v4).ether(etherIPv4).udp(1, 2)
	version.version = 5
	for _, c := range []struct {
		name string
		in   packet
		want flow.Event
	}{
		{"UDP", spoofs(1), flow.Event{Protocol: protoUDP, Source: at(podA2.v4, 1), Destination: at(podB.v4, 53), Reason: spoofed}},
		{"TCP", tcp(fromPod().ipv6(podA2.v6, podB.v6).tcp(2, 80), 0x12), flow.Event{
			Protocol: protoTCP, TCPFlags: 0x12, Source: at(podA2.v6, 2), Destination: at(podB.v6, 80), Reason: spoofed,
		}},
		{"echo", fromPod().ipv4(podA2.v4, podB.v4).echo(), flow.Event{Protocol: protoICMP, Source: at(podA2.v4, 7), Destination: at(podB.v4, 0), Reason: spoofed}},
		{"another ICMP message", fromPod().ipv6(podA2.v6, podB.v6).icmp(1, 4), flow.Event{
			Protocol: protoICMPv6, Source: at(podA2.v6, 0), Destination: at(podB.v6, 0), Reason: spoofed,
		}},
		{"SCTP", fromPod().ipv4(podA2.v4, podB.v4).raw(protoSCTP, []byte{0, 9, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0}), flow.Event{
			Protocol: protoSCTP, Source: at(podA2.v4, 9), Destination: at(podB.v4, 10), Reason: spoofed,
		}},
		{"a protocol without ports", fromPod().ipv4(podA2.v4, podB.v4).raw(47, make([]byte, 16)), flow.Event{
			Protocol: 47, Source: at(podA2.v4, 0), Destination: at(podB.v4, 0), Reason: spoofed,
		}},
		{"IPv4 options", fromPod().ipv4(podA2.v4, podB.v4).ipOptions(0x94, 4, 0, 0).udp(3, 4), flow.Event{
			Protocol: protoUDP, Source: at(podA2.v4, 3), Destination: at(podB.v4, 4), Reason: spoofed,
		}},
		{"IPv6 extension headers", fromPod().ipv6(podA2.v6, podB.v6).extend(protoDstOptions).udp(5, 6), flow.Event{
			Protocol: protoUDP, Source: at(podA2.v6, 5), Destination: at(podB.v6, 6), Reason: spoofed,
		}},
		{"a later fragment", fromPod().ipv4(podA2.v4, podB.v4).udp(7, 8).payload("12345678").fragment(1024, false), flow.Event{
			Protocol: protoUDP, Source: at(podA2.v4, 0), Destination: at(podB.v4, 0), Reason: spoofed,
		}},
		{"cut off behind the IP header", fromPod().ipv4(podA2.v4, podB.v4).raw(protoTCP, []byte{1}), flow.Event{
			Protocol: protoTCP, Source: at(podA2.v4, 0), Destination: at(podB.v4, 0), Reason: spoofed,
		}},
		{"a header too short", shortHeader, flow.Event{Protocol: protoUDP, Source: at(podA.v4, 0), Destination: at(podB.v4, 0), Reason: malformed}},
		{"another version", version, flow.Event{Reason: malformed}},
		{"not IP", fromPod().ether(etherMPLS).payload("12345678901234567890123456789012"), flow.Event{Reason: DropReason(bpfDropReasonDROP_NOT_IP).String()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := time.Now()
			r.drop(t, c.in)
			c.want.Kind, c.want.Program, c.want.Device = flow.Dropped, bpfProgFromPod, device
			c.want.Packets[0], c.want.Bytes[0] = 1, uint64(len(c.in.bytes()))
			got := told(t, reader)
			if diff := cmp.Diff([]flow.Event{c.want}, got, ignoreMeaning); diff != "" {
				t.Fatalf("events (-expected +got):\n%s", diff)
			}
			if e := got[0]; e.Time.Before(before.Add(-time.Second)) || e.Time.After(time.Now().Add(time.Second)) || len(e.Meaning) < 10 {
				t.Errorf("at %v, between %v and %v: %q", e.Time, before, time.Now(), e.Meaning)
			}
		})
	}
	if lost := r.lost(t); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
}

// Drops before there is a socket buffer are told as well.
func TestFlowsTellOfXDPDrops(t *testing.T) {
	r := newServiceRig(t, Config{Flows: FlowsDrops})
	reader := r.watch(t)
	closed := netip.AddrPortFrom(nodeA.v4, 30200)
	r.serve(t, closed, bpfServiceFlagSERVICE_SOURCES, flowOf(4).backend)
	in := run{program: bpfProgWireXdp, in: eth(router, nodeA.mac).ip(world.v4, closed.Addr()).udp(45000, closed.Port()).bytes()}
	r.checkOne(t, drops("", in, uint32(bpfDropReasonDROP_SOURCE_NOT_ALLOWED)))
	want := flow.Event{
		Kind: flow.Dropped, Protocol: protoUDP, Source: netip.AddrPortFrom(world.v4, 45000), Destination: closed,
		Packets: [2]uint64{1}, Bytes: [2]uint64{uint64(len(in.in))}, Reason: DropReason(bpfDropReasonDROP_SOURCE_NOT_ALLOWED).String(),
		Program: bpfProgWireXdp, Device: r.stage.devices["eth0"],
	}
	if diff := cmp.Diff([]flow.Event{want}, told(t, reader), ignoreMeaning); diff != "" {
		t.Errorf("events (-expected +got):\n%s", diff)
	}
}

// The same drop is told once in a second; what is counted meanwhile comes with the next event, and is counted as lost when others
// take its place before.
func TestFlowsCountDropsThatAreAlike(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Flows: FlowsDrops, FlowsRate: 1e6})
	reader := r.watch(t)
	pinned(t, r)
	const more = 20
	alike, other := slices.Repeat([]packet{spoofs(1)}, 1+more), spoofs(3) // another port is another drop
	var got []flow.Event
	r.withinSecond(t, func() {
		if err := zeroArray(r.d.objects.maps.FlowDrops); err != nil {
			t.Fatal(err)
		}
		r.drop(t, append(alike, other)...)
		got = told(t, reader)
	})
	if len(got) != 2 || got[0].Packets[0] != 1 || got[1].Source.Port() != 3 {
		t.Fatalf("events %+v, expected one of each drop", got)
	}
	r.age(t, 2*time.Second)
	r.drop(t, alike[0])
	got = told(t, reader)
	if size := uint64(len(alike[0].bytes())); len(got) != 1 || got[0].Packets[0] != 1+more || got[0].Bytes[0] != (1+more)*size {
		t.Fatalf("events %+v, expected one of %d packets", got, 1+more)
	}
	r.withinSecond(t, func() {
		r.age(t, 2*time.Second)
		r.drop(t, alike[:2]...) // the second one is counted, and then others come
	})
	r.age(t, 2*time.Second)
	for port := range uint16(4096) {
		r.drop(t, spoofs(10000+port))
	}
	if diff := cmp.Diff(map[string]uint64{"dropped evicted": 1}, r.lost(t)); diff != "" {
		t.Errorf("lost (-expected +got):\n%s", diff)
	}
}

// Of a drop like one that was told, of which no other follows, the reader has the datapath tell a second later, once: no packet has to come.
func TestFlowsTellOfCountedDrops(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Flows: FlowsDrops, FlowsRate: 1e6})
	reader := r.watch(t)
	const more = 20
	alike := slices.Repeat([]packet{spoofs(1)}, 1+more)
	asked := func() []flow.Event {
		reader.reportDropsNow()
		return told(t, reader)
	}
	for cpu := range 2 {
		pinnedTo(t, r, cpu%runtime.NumCPU())
		var first, second []flow.Event
		r.withinSecond(t, func() {
			if err := zeroArray(r.d.objects.maps.FlowDrops); err != nil {
				t.Fatal(err)
			}
			r.drop(t, alike...)
			first, second = asked(), asked()
		})
		if len(first) != 1 || first[0].Packets[0] != 1 || len(second) > 0 {
			t.Fatalf("events %+v, and then %+v, expected that of the first drop", first, second)
		}
		r.age(t, 2*time.Second)
		want := first[0]
		want.Packets[0], want.Bytes[0] = more, more*want.Bytes[0]
		if diff := cmp.Diff([]flow.Event{want}, asked(), ignoreMeaning); diff != "" {
			t.Errorf("events a second later (-expected +got):\n%s", diff)
		}
		r.age(t, 2*time.Second)
		if got := asked(); len(got) > 0 {
			t.Errorf("events %+v, but all is told", got)
		}
	}
	if lost := r.lost(t); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
}

// withinSecond does something, and once more where it took so long that the same drop may have been told of twice.
func (r *rig) withinSecond(t *testing.T, do func()) {
	t.Helper()
	for {
		began := time.Now()
		if do(); time.Since(began) < time.Second || t.Failed() {
			return
		}
	}
}

// pinned keeps the stage on one CPU: what is counted for each CPU would depend on where the scheduler puts it.
func pinned(t *testing.T, r *rig) {
	t.Helper()
	pinnedTo(t, r, 0)
}

func pinnedTo(t *testing.T, r *rig, cpu int) {
	t.Helper()
	var before, one unix.CPUSet
	one.Set(cpu)
	r.stage.do(func() {
		if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		r.stage.do(func() {
			if err := unix.SchedSetaffinity(0, &before); err != nil {
				t.Error(err)
			}
		})
	})
}

// age makes all drops that were told, and what the CPUs have used up of their rate, so much older.
func (r *rig) age(t *testing.T, by time.Duration) {
	t.Helper()
	for i := range uint32(r.d.objects.maps.FlowDrops.MaxEntries()) {
		var perCPU []bpfFlowDrop
		if err := r.d.objects.maps.FlowDrops.Lookup(i, &perCPU); err != nil {
			t.Fatal(err)
		}
		for cpu := range perCPU {
			perCPU[cpu].Reported -= min(perCPU[cpu].Reported, uint64(by))
		}
		if err := r.d.objects.maps.FlowDrops.Put(i, perCPU); err != nil {
			t.Fatal(err)
		}
	}
	if err := clearMap(r.d.objects.maps.FlowShares); err != nil {
		t.Fatal(err)
	}
	var used []uint64
	if err := r.d.objects.maps.FlowRatelimit.Lookup(uint32(0), &used); err != nil {
		t.Fatal(err)
	}
	for cpu := range used {
		used[cpu] -= min(used[cpu], uint64(by))
	}
	if err := r.d.objects.maps.FlowRatelimit.Put(uint32(0), used); err != nil {
		t.Fatal(err)
	}
}

// A CPU tells of so many drops a second and no more; the verdicts and the counters of drops do not change.
func TestFlowsRate(t *testing.T) {
	const rate, sent = 50, 2000
	r := newRig(t, Config{EBPFRouting: true, Flows: FlowsDrops, FlowsRate: rate})
	reader := r.watch(t)
	pinned(t, r)
	begin := time.Now()
	// Their place in the table must not matter, so all are different.
	for i := range sent {
		r.drop(t, spoofs(uint16(i)))
	}
	events, lost := len(told(t, reader)), r.lost(t)["dropped limited"]
	most := rate*(1+int(time.Since(begin)/time.Second)+1) + 1 // a burst of a second, and what has passed
	if events < rate || events > most || uint64(events)+lost != sent {
		t.Errorf("%d events, expected %d to %d, and %d lost of %d drops", events, rate, most, lost, sent)
	}
	if counted := r.counters(t)[bpfProgFromPod+" spoofed_source"].Packets; counted != sent {
		t.Errorf("%d of %d drops are counted", counted, sent)
	}
	r.age(t, time.Minute)
	r.drop(t, spoofs(sent))
	if got := told(t, reader); len(got) != 1 {
		t.Errorf("%d events after a minute, expected 1", len(got))
	}
}

// When nobody reads, what does not fit is counted, and nothing else changes.
func TestFlowsWithoutReader(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Flows: FlowsDrops, FlowsRate: 1e9})
	const sent = 12000 // an event takes 112 bytes of a MiB
	for i := range sent {
		r.drop(t, spoofs(uint16(i)))
	}
	if counted := r.counters(t)[bpfProgFromPod+" spoofed_source"].Packets; counted != sent {
		t.Errorf("%d of %d drops are counted", counted, sent)
	}
	lost := r.lost(t)["dropped full"]
	if lost == 0 {
		t.Error("nothing is lost")
	}
	reader := r.watch(t)
	if events := len(told(t, reader)); uint64(events)+lost != sent {
		t.Errorf("%d events and %d lost of %d", events, lost, sent)
	}
	r.drop(t, spoofs(sent))
	if got := told(t, reader); len(got) != 1 || got[0].Source.Port() != sent {
		t.Errorf("events %+v, expected that of the last drop", got)
	}
}

// Without flows, nothing is told, and nothing lost.
func TestFlowsOff(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true})
	reader := r.watch(t)
	r.drop(t, spoofs(1))
	if got, lost := told(t, reader), r.lost(t); len(got)+len(lost) > 0 {
		t.Errorf("told %v, lost %v", got, lost)
	}
}

// The numbers of kinds in Go are those of C, and every loss has words.
func TestFlowNames(t *testing.T) {
	kinds := enumOf(t, "../../bpf/types_policy.h", "flow_kind", "FLOW_")
	if len(kinds) != len(flow.Kinds)+1 || kinds[len(flow.Kinds)] != "kind_max" {
		t.Fatalf("%d kinds in Go, and in C %v", len(flow.Kinds), kinds)
	}
	for i, k := range flow.Kinds {
		if int(k) != i || k.String() != kinds[i] {
			t.Errorf("kind %d is %q in Go and %q in C", i, k, kinds[i])
		}
	}
	losses := enumOf(t, "../../bpf/types_policy.h", "flow_loss", "FLOW_LOSS_")
	all, err := newRig(t, Config{EBPFRouting: true, Flows: FlowsDrops}).d.Flows.Losses()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		if l.Why != losses[i%(len(losses)-1)] || len(l.Meaning) < 10 {
			t.Errorf("loss %d is %+v in Go and %q in C", i, l, losses[i%(len(losses)-1)])
		}
	}
	if len(all) != len(flow.Kinds)*(len(losses)-1) {
		t.Errorf("%d losses in Go, and in C %v of each kind", len(all), losses)
	}
	if s := fmt.Sprint(flow.Kind(99)); !strings.Contains(s, "unknown") {
		t.Errorf("a kind of a newer datapath is %q", s)
	}
}
