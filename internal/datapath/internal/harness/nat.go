package harness

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// Established looks up both directions of a flow in `nat`.
func (r *Harness) Established(tb testing.TB, f fixtures.Visit) (there, back bpf.NatEntry, both bool) {
	tb.Helper()
	m := r.D.Objects.Maps.Nat
	err1 := m.Lookup(bpf.TupleOf(f.Client, f.Frontend, fixtures.ProtoTCP), &there)
	err2 := m.Lookup(bpf.TupleOf(f.Backend, f.Node, fixtures.ProtoTCP), &back)
	return there, back, err1 == nil && err2 == nil
}

// Ends are the two ends of a flow, which send segments with flags that a program at the uplink gets.
func (r *Harness) Ends(program string, f fixtures.Visit) (send, answer func(flags byte)) {
	send = func(flags byte) {
		p := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(f.Client.Addr(), f.Frontend.Addr()).Tcp(f.Client.Port(), f.Frontend.Port()).Segment(flags, 1000, 0)
		r.Netns.Do(func() { _, _ = r.Run(Run{Program: program, In: p.Bytes()}) })
	}
	answer = func(flags byte) {
		p := fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac).Ip(f.Backend.Addr(), f.Node.Addr()).Tcp(f.Backend.Port(), f.Node.Port()).Segment(flags, 1000, 0)
		r.Netns.Do(func() { _, _ = r.Run(Run{Program: program, In: p.Bytes()}) })
	}
	return send, answer
}

// ForgetNAT removes all NAT entries.
func (r *Harness) ForgetNAT(t *testing.T) {
	t.Helper()
	if err := ClearMap(r.D.Objects.Maps.NatPending); err != nil {
		t.Fatal(err)
	}
	if err := ClearMap(r.D.Objects.Maps.Nat); err != nil {
		t.Fatal(err)
	}
}
