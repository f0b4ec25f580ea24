package flow_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	dpflow "github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/flow"
)

// lost returns the lost events, by "kind why".
func lost(r *harness.Harness, t *testing.T) map[string]uint64 {
	t.Helper()
	losses, err := r.D.Events.Losses()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, l := range losses {
		if l.Events > 0 {
			all[l.Kind.String()+" "+l.Reason] = l.Events
		}
	}
	return all
}

// spoofs is a packet of PodA with another pod's source address, from this port.
func spoofs(port uint16) fixtures.Packet {
	return fixtures.FromPod().Ipv4(fixtures.PodA2.V4, fixtures.PodB.V4).Udp(port, 53)
}

// drop runs packets that from_pod drops, and ignores their events.
func drop(r *harness.Harness, t *testing.T, packets ...fixtures.Packet) {
	t.Helper()
	r.Netns.Do(func() {
		for _, p := range packets {
			if got, err := r.Run(harness.PodSends(p)); err != nil || got.Verdict != harness.VerdictDrop {
				t.Errorf("verdict %v (%v), expected a drop", got.Verdict, err)
				return
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// A drop event has all fields of the packet that can be read, and the program that dropped it.
func TestFlowsReportDrops(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true, Flows: config.FlowsDrops})
	reader := r.Watch(t)
	device := r.Netns.Devices["blpoda"]
	tcp := func(p fixtures.Packet, flags byte) fixtures.Packet {
		p.Transport[13] = flags
		return p
	}
	at := netip.AddrPortFrom
	spoofed, malformed := dpflow.DropReason(bpf.DropReasonDROP_SPOOFED_SOURCE).String(), dpflow.DropReason(bpf.DropReasonDROP_MALFORMED).String()
	shortHeader := fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Udp(1, 2)
	shortHeader.Ihl = 4
	version := fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Ether(fixtures.EtherIPv4).Udp(1, 2)
	version.Version = 5
	for _, c := range []struct {
		name string
		in   fixtures.Packet
		want flow.Event
	}{
		{"UDP", spoofs(1), flow.Event{Protocol: fixtures.ProtoUDP, Source: at(fixtures.PodA2.V4, 1), Destination: at(fixtures.PodB.V4, 53), Reason: spoofed}},
		{"TCP", tcp(fixtures.FromPod().Ipv6(fixtures.PodA2.V6, fixtures.PodB.V6).Tcp(2, 80), 0x12), flow.Event{
			Protocol: fixtures.ProtoTCP, TCPFlags: 0x12, Source: at(fixtures.PodA2.V6, 2), Destination: at(fixtures.PodB.V6, 80), Reason: spoofed,
		}},
		{"echo", fixtures.FromPod().Ipv4(fixtures.PodA2.V4, fixtures.PodB.V4).Echo(), flow.Event{Protocol: fixtures.ProtoICMP, Source: at(fixtures.PodA2.V4, 7), Destination: at(fixtures.PodB.V4, 0), Reason: spoofed}},
		{"another ICMP message", fixtures.FromPod().Ipv6(fixtures.PodA2.V6, fixtures.PodB.V6).Icmp(1, 4), flow.Event{
			Protocol: fixtures.ProtoICMPv6, Source: at(fixtures.PodA2.V6, 0), Destination: at(fixtures.PodB.V6, 0), Reason: spoofed,
		}},
		{"SCTP", fixtures.FromPod().Ipv4(fixtures.PodA2.V4, fixtures.PodB.V4).Raw(fixtures.ProtoSCTP, []byte{0, 9, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0}), flow.Event{
			Protocol: fixtures.ProtoSCTP, Source: at(fixtures.PodA2.V4, 9), Destination: at(fixtures.PodB.V4, 10), Reason: spoofed,
		}},
		{"a protocol without ports", fixtures.FromPod().Ipv4(fixtures.PodA2.V4, fixtures.PodB.V4).Raw(47, make([]byte, 16)), flow.Event{
			Protocol: 47, Source: at(fixtures.PodA2.V4, 0), Destination: at(fixtures.PodB.V4, 0), Reason: spoofed,
		}},
		{"IPv4 options", fixtures.FromPod().Ipv4(fixtures.PodA2.V4, fixtures.PodB.V4).IpOptions(0x94, 4, 0, 0).Udp(3, 4), flow.Event{
			Protocol: fixtures.ProtoUDP, Source: at(fixtures.PodA2.V4, 3), Destination: at(fixtures.PodB.V4, 4), Reason: spoofed,
		}},
		{"IPv6 extension headers", fixtures.FromPod().Ipv6(fixtures.PodA2.V6, fixtures.PodB.V6).Extend(fixtures.ProtoDstOptions).Udp(5, 6), flow.Event{
			Protocol: fixtures.ProtoUDP, Source: at(fixtures.PodA2.V6, 5), Destination: at(fixtures.PodB.V6, 6), Reason: spoofed,
		}},
		{"a later fragment", fixtures.FromPod().Ipv4(fixtures.PodA2.V4, fixtures.PodB.V4).Udp(7, 8).Payload("12345678").Fragment(1024, false), flow.Event{
			Protocol: fixtures.ProtoUDP, Source: at(fixtures.PodA2.V4, 0), Destination: at(fixtures.PodB.V4, 0), Reason: spoofed,
		}},
		{"cut off behind the IP header", fixtures.FromPod().Ipv4(fixtures.PodA2.V4, fixtures.PodB.V4).Raw(fixtures.ProtoTCP, []byte{1}), flow.Event{
			Protocol: fixtures.ProtoTCP, Source: at(fixtures.PodA2.V4, 0), Destination: at(fixtures.PodB.V4, 0), Reason: spoofed,
		}},
		{"a header too short", shortHeader, flow.Event{Protocol: fixtures.ProtoUDP, Source: at(fixtures.PodA.V4, 0), Destination: at(fixtures.PodB.V4, 0), Reason: malformed}},
		{"another version", version, flow.Event{Reason: malformed}},
		{"not IP", fixtures.FromPod().Ether(fixtures.EtherMPLS).Payload("12345678901234567890123456789012"), flow.Event{Reason: dpflow.DropReason(bpf.DropReasonDROP_NOT_IP).String()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := time.Now()
			drop(r, t, c.in)
			c.want.Kind, c.want.Program, c.want.Device = flow.KindDropped, bpf.ProgFromPod, device
			c.want.Packets[0], c.want.Bytes[0] = 1, uint64(len(c.in.Bytes()))
			got := harness.ReadEvents(t, reader)
			if diff := cmp.Diff([]flow.Event{c.want}, got, fixtures.IgnoreMeaning); diff != "" {
				t.Fatalf("events (-expected +got):\n%s", diff)
			}
			if e := got[0]; e.Time.Before(before.Add(-time.Second)) || e.Time.After(time.Now().Add(time.Second)) || len(e.Meaning) < 10 {
				t.Errorf("at %v, between %v and %v: %q", e.Time, before, time.Now(), e.Meaning)
			}
		})
	}
	if lost := lost(r, t); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
}

// Drops at XDP are reported as well.
func TestFlowsReportXDPDrops(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{Flows: config.FlowsDrops})
	reader := r.Watch(t)
	closed := netip.AddrPortFrom(fixtures.NodeA.V4, 30200)
	r.Serve(t, closed, bpf.ServiceFlagSERVICE_SOURCES, fixtures.FlowOf(4).Backend)
	in := harness.Run{Program: bpf.ProgWireXdp, In: fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(fixtures.External.V4, closed.Addr()).Udp(45000, closed.Port()).Bytes()}
	r.CheckOne(t, harness.Drops("", in, uint32(bpf.DropReasonDROP_SOURCE_NOT_ALLOWED)))
	want := flow.Event{
		Kind: flow.KindDropped, Protocol: fixtures.ProtoUDP, Source: netip.AddrPortFrom(fixtures.External.V4, 45000), Destination: closed,
		Packets: [2]uint64{1}, Bytes: [2]uint64{uint64(len(in.In))}, Reason: dpflow.DropReason(bpf.DropReasonDROP_SOURCE_NOT_ALLOWED).String(),
		Program: bpf.ProgWireXdp, Device: r.Netns.Devices["eth0"],
	}
	if diff := cmp.Diff([]flow.Event{want}, harness.ReadEvents(t, reader), fixtures.IgnoreMeaning); diff != "" {
		t.Errorf("events (-expected +got):\n%s", diff)
	}
}

// The same drop is reported once a second. Drops that are only counted are in the next event, or counted as lost if
// their count is evicted first.
func TestFlowsCountDropsThatAreAlike(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsDrops, FlowsRate: 1e6})
	reader := r.Watch(t)
	const more = 20
	alike, other := slices.Repeat([]fixtures.Packet{spoofs(1)}, 1+more), spoofs(3) // another port makes another drop
	var got []flow.Event
	withinSecond(r, t, func() {
		if err := harness.ZeroArray(r.D.Objects.Maps.FlowDrops); err != nil {
			t.Fatal(err)
		}
		drop(r, t, append(alike, other)...)
		got = harness.ReadEvents(t, reader)
	})
	if len(got) != 2 || got[0].Packets[0] != 1 || got[1].Source.Port() != 3 {
		t.Fatalf("events %+v, expected one of each drop", got)
	}
	age(r, t, 2*time.Second)
	drop(r, t, alike[0])
	got = harness.ReadEvents(t, reader)
	if size := uint64(len(alike[0].Bytes())); len(got) != 1 || got[0].Packets[0] != 1+more || got[0].Bytes[0] != (1+more)*size {
		t.Fatalf("events %+v, expected one of %d packets", got, 1+more)
	}
	withinSecond(r, t, func() {
		age(r, t, 2*time.Second)
		drop(r, t, alike[:2]...) // the second one is counted and then evicted
	})
	age(r, t, 2*time.Second)
	for port := range uint16(4096) {
		drop(r, t, spoofs(10000+port))
	}
	if diff := cmp.Diff(map[string]uint64{"dropped evicted": 1}, lost(r, t)); diff != "" {
		t.Errorf("lost (-expected +got):\n%s", diff)
	}
}

// The reader has the datapath report a counted drop a second later, once, even if no packet follows.
func TestFlowsReportCountedDrops(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsDrops, FlowsRate: 1e6})
	reader := r.Watch(t)
	const more = 20
	alike := slices.Repeat([]fixtures.Packet{spoofs(1)}, 1+more)
	reported := func() []flow.Event {
		reader.ReportDropsNow()
		return harness.ReadEvents(t, reader)
	}
	for cpu := range 2 {
		harness.PinnedTo(t, r, cpu%runtime.NumCPU())
		var first, second []flow.Event
		withinSecond(r, t, func() {
			if err := harness.ZeroArray(r.D.Objects.Maps.FlowDrops); err != nil {
				t.Fatal(err)
			}
			drop(r, t, alike...)
			first, second = reported(), reported()
		})
		if len(first) != 1 || first[0].Packets[0] != 1 || len(second) > 0 {
			t.Fatalf("events %+v, and then %+v, expected that of the first drop", first, second)
		}
		age(r, t, 2*time.Second)
		want := first[0]
		want.Packets[0], want.Bytes[0] = more, more*want.Bytes[0]
		if diff := cmp.Diff([]flow.Event{want}, reported(), fixtures.IgnoreMeaning); diff != "" {
			t.Errorf("events a second later (-expected +got):\n%s", diff)
		}
		age(r, t, 2*time.Second)
		if got := reported(); len(got) > 0 {
			t.Errorf("events %+v, but all are reported", got)
		}
	}
	if lost := lost(r, t); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
}

// withinSecond runs do, and again if it took so long that the same drop may have been reported twice.
func withinSecond(r *harness.Harness, t *testing.T, do func()) {
	t.Helper()
	for {
		began := time.Now()
		if do(); time.Since(began) < time.Second || t.Failed() {
			return
		}
	}
}

// age makes all reported drops, and the used part of the CPUs' rates, so much older.
func age(r *harness.Harness, t *testing.T, by time.Duration) {
	t.Helper()
	for i := range uint32(r.D.Objects.Maps.FlowDrops.MaxEntries()) {
		var perCPU []bpf.FlowDrop
		if err := r.D.Objects.Maps.FlowDrops.Lookup(i, &perCPU); err != nil {
			t.Fatal(err)
		}
		for cpu := range perCPU {
			perCPU[cpu].Reported -= min(perCPU[cpu].Reported, uint64(by))
		}
		if err := r.D.Objects.Maps.FlowDrops.Put(i, perCPU); err != nil {
			t.Fatal(err)
		}
	}
	if err := harness.ClearMap(r.D.Objects.Maps.FlowShares); err != nil {
		t.Fatal(err)
	}
	var used []uint64
	if err := r.D.Objects.Maps.FlowRatelimit.Lookup(uint32(0), &used); err != nil {
		t.Fatal(err)
	}
	for cpu := range used {
		used[cpu] -= min(used[cpu], uint64(by))
	}
	if err := r.D.Objects.Maps.FlowRatelimit.Put(uint32(0), used); err != nil {
		t.Fatal(err)
	}
}

// A CPU reports a limited number of drops a second; verdicts and drop counters do not change.
func TestFlowsRate(t *testing.T) {
	const rate, sent = 50, 2000
	r := harness.New(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsDrops, FlowsRate: rate})
	reader := r.Watch(t)
	begin := time.Now()
	// All are different, so that their slots in the table do not matter.
	for i := range sent {
		drop(r, t, spoofs(uint16(i)))
	}
	events, lost := len(harness.ReadEvents(t, reader)), lost(r, t)["dropped limited"]
	most := rate*(1+int(time.Since(begin)/time.Second)+1) + 1 // a burst of a second, plus the time that has passed
	if events < rate || events > most || uint64(events)+lost != sent {
		t.Errorf("%d events, expected %d to %d, and %d lost of %d drops", events, rate, most, lost, sent)
	}
	if counted := r.Counters(t)[bpf.ProgFromPod+" spoofed_source"].Packets; counted != sent {
		t.Errorf("%d of %d drops are counted", counted, sent)
	}
	age(r, t, time.Minute)
	drop(r, t, spoofs(sent))
	if got := harness.ReadEvents(t, reader); len(got) != 1 {
		t.Errorf("%d events after a minute, expected 1", len(got))
	}
}

// Without a reader lost events are counted, and nothing else changes.
func TestFlowsWithoutReader(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsDrops, FlowsRate: 1e9})
	const sent = 12000 // an event takes 112 bytes of a MiB
	for i := range sent {
		drop(r, t, spoofs(uint16(i)))
	}
	if counted := r.Counters(t)[bpf.ProgFromPod+" spoofed_source"].Packets; counted != sent {
		t.Errorf("%d of %d drops are counted", counted, sent)
	}
	lost := lost(r, t)["dropped full"]
	if lost == 0 {
		t.Error("nothing is lost")
	}
	reader := r.Watch(t)
	if events := len(harness.ReadEvents(t, reader)); uint64(events)+lost != sent {
		t.Errorf("%d events and %d lost of %d", events, lost, sent)
	}
	drop(r, t, spoofs(sent))
	if got := harness.ReadEvents(t, reader); len(got) != 1 || got[0].Source.Port() != sent {
		t.Errorf("events %+v, expected that of the last drop", got)
	}
}

// With flow events off, nothing is reported or lost.
func TestFlowsOff(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true})
	reader := r.Watch(t)
	drop(r, t, spoofs(1))
	if got, lost := harness.ReadEvents(t, reader), lost(r, t); len(got)+len(lost) > 0 {
		t.Errorf("reported %v, lost %v", got, lost)
	}
}

// The numbers of kinds in Go are those of C, and every loss has a meaning.
func TestFlowNames(t *testing.T) {
	kinds := fixtures.EnumOf(t, "flow_kind", "FLOW_")
	if len(kinds) != len(flow.Kinds)+1 || kinds[len(flow.Kinds)] != "kind_max" {
		t.Fatalf("%d kinds in Go, and in C %v", len(flow.Kinds), kinds)
	}
	for i, k := range flow.Kinds {
		if int(k) != i || k.String() != kinds[i] {
			t.Errorf("kind %d is %q in Go and %q in C", i, k, kinds[i])
		}
	}
	losses := fixtures.EnumOf(t, "flow_loss", "FLOW_LOSS_")
	all, err := harness.New(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsDrops}).D.Events.Losses()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		if l.Reason != losses[i%(len(losses)-1)] || len(l.Meaning) < 10 {
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
