package datapath

import (
	"testing"
	"time"
)

// datagrams is the established connection of a flow of UDP, both directions.
func (r *rig) datagrams(tb testing.TB, f visit) (keys [2]bpfTuple, values [2]bpfNatEntry) {
	tb.Helper()
	keys = [2]bpfTuple{tupleOf(f.client, f.frontend, protoUDP), tupleOf(f.backend, f.node, protoUDP)}
	for i, key := range keys {
		if err := r.d.objects.maps.Nat.Lookup(key, &values[i]); err != nil {
			tb.Fatal(err)
		}
	}
	return keys, values
}

// setAge says that a connection began so long ago and has had no packet since; stream says which of its directions are a stream.
func (r *rig) setAge(tb testing.TB, f visit, age time.Duration, stream [2]uint8) {
	tb.Helper()
	now, err := Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	keys, values := r.datagrams(tb, f)
	for i := range keys {
		values[i].Seen, values[i].Created = uint64(now-age), uint16((now-age)>>28)
		values[i].Flags = values[i].Flags&isOpener | stream[i]
		if err := r.d.objects.maps.Nat.Put(keys[i], values[i]); err != nil {
			tb.Fatal(err)
		}
	}
}

// A question and its answer are no stream, however often they are repeated within two seconds. What goes on for longer is one, in each
// direction that does (net/netfilter/nf_conntrack_proto_udp.c).
func TestDatagramsBecomeStreams(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, program := range []string{bpfProgFromWire, bpfProgWireXdp} {
		for _, family := range families {
			f := flowOf(family)
			r.enter(t, f, protoUDP)
			ask := eth(router, nodeA.mac).ip(f.client.Addr(), f.frontend.Addr()).udp(f.client.Port(), f.frontend.Port()).payload("?")
			reply := eth(nodeB.mac, nodeA.mac).ip(f.backend.Addr(), f.node.Addr()).udp(f.backend.Port(), f.node.Port()).payload("!")
			before := [2]uint8{}
			for _, step := range []struct {
				age   time.Duration
				in    packet
				after [2]uint8
			}{
				{time.Second / 2, ask, [2]uint8{}},
				{3 * time.Second / 2, reply, [2]uint8{}},
				{3 * time.Second, reply, [2]uint8{0, isStream}},
				{3 * time.Second, ask, [2]uint8{isStream, isStream}},
			} {
				for late := true; late; { // on a busy machine the connection is older by the time of the packet
					began := time.Now()
					r.setAge(t, f, step.age, before)
					r.stage.do(func() { _, _ = r.run(run{program: program, in: step.in.bytes()}) })
					late = time.Since(began) > time.Second/4
				}
				if _, now := r.datagrams(t, f); now[0].Flags != isOpener|step.after[0] || now[1].Flags != step.after[1] {
					t.Errorf("%s IPv%d after %s: flags are %#x and %#x", program, family, step.age, now[0].Flags, now[1].Flags)
				}
				before = step.after
			}
		}
	}
}
