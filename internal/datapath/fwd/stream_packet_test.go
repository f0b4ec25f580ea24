package fwd_test

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// datagrams is the established connection of a flow of UDP, both directions.
func datagrams(r *harness.Harness, tb testing.TB, f fixtures.Visit) (keys [2]bpf.Tuple, values [2]bpf.NatEntry) {
	tb.Helper()
	keys = [2]bpf.Tuple{bpf.TupleOf(f.Client, f.Frontend, fixtures.ProtoUDP), bpf.TupleOf(f.Backend, f.Node, fixtures.ProtoUDP)}
	for i, key := range keys {
		if err := r.D.Objects.Maps.Nat.Lookup(key, &values[i]); err != nil {
			tb.Fatal(err)
		}
	}
	return keys, values
}

// setAge says that a connection began so long ago and has had no packet since; stream says which of its directions are a stream.
func setAge(r *harness.Harness, tb testing.TB, f fixtures.Visit, age time.Duration, stream [2]uint8) {
	tb.Helper()
	now, err := table.Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	keys, values := datagrams(r, tb, f)
	for i := range keys {
		values[i].Seen, values[i].Created = uint64(now-age), uint16((now-age)>>28)
		values[i].Flags = values[i].Flags&fixtures.IsOpener | stream[i]
		if err := r.D.Objects.Maps.Nat.Put(keys[i], values[i]); err != nil {
			tb.Fatal(err)
		}
	}
}

// A request and its reply are no stream, however often they are repeated within two seconds. What goes on for longer is one, in each
// direction that does (net/netfilter/nf_conntrack_proto_udp.c).
func TestDatagramsBecomeStreams(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, program := range []string{bpf.ProgFromWire, bpf.ProgWireXdp} {
		for _, family := range fixtures.Families {
			f := fixtures.FlowOf(family)
			r.Enter(t, f, fixtures.ProtoUDP)
			ask := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(f.Client.Addr(), f.Frontend.Addr()).Udp(f.Client.Port(), f.Frontend.Port()).Payload("?")
			reply := fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac).Ip(f.Backend.Addr(), f.Node.Addr()).Udp(f.Backend.Port(), f.Node.Port()).Payload("!")
			before := [2]uint8{}
			for _, step := range []struct {
				age   time.Duration
				in    fixtures.Packet
				after [2]uint8
			}{
				{time.Second / 2, ask, [2]uint8{}},
				{3 * time.Second / 2, reply, [2]uint8{}},
				{3 * time.Second, reply, [2]uint8{0, fixtures.IsStream}},
				{3 * time.Second, ask, [2]uint8{fixtures.IsStream, fixtures.IsStream}},
			} {
				for late := true; late; { // on a busy machine the connection is older by the time of the packet
					began := time.Now()
					setAge(r, t, f, step.age, before)
					r.Netns.Do(func() { _, _ = r.Run(harness.Run{Program: program, In: step.in.Bytes()}) })
					late = time.Since(began) > time.Second/4
				}
				if _, now := datagrams(r, t, f); now[0].Flags != fixtures.IsOpener|step.after[0] || now[1].Flags != step.after[1] {
					t.Errorf("%s IPv%d after %s: flags are %#x and %#x", program, family, step.age, now[0].Flags, now[1].Flags)
				}
				before = step.after
			}
		}
	}
}
