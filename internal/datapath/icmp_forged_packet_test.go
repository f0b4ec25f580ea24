package datapath

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
)

// tables gives what the tables of connections hold.
func (r *rig) tables(tb testing.TB) map[bpfTuple]bpfNatEntry {
	tb.Helper()
	all := map[bpfTuple]bpfNatEntry{}
	for _, m := range []*ebpf.Map{r.d.objects.maps.Nat, r.d.objects.maps.NatPending} {
		if err := readAll(m, func(k *bpfTuple, v *bpfNatEntry) { all[*k] = *v }); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

// Errors that somebody makes up change no table, whatever they quote, and those that do not fit a connection go nowhere else than
// where they are sent.
func TestForgedErrors(t *testing.T) {
	r := newServiceRig(t, Config{})
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		r.enter(t, f, protocol)
		none := eth(MAC{}, MAC{})
		sent := transport(none, f.node, f.backend)
		kinds := [][2]byte{{3, 0}, {3, 1}, {3, 3}, {3, 4}, {4, 0}, {5, 0}, {11, 0}, {12, 0}}
		if family == 6 {
			kinds = [][2]byte{{1, 0}, {1, 4}, {2, 0}, {3, 0}, {4, 0}, {137, 0}}
		}
		before := r.tables(t)
		fits := 0
		for _, kind := range kinds {
			quote := func(to netip.Addr, about packet, limit int) []byte {
				return quoting(eth(router, nodeA.mac), world.addr(family), to, kind[0], kind[1], 68, about, limit).bytes()
			}
			header := ipv4Len
			if family == 6 {
				header = ipv6Len
			}
			other := transport(none, netip.AddrPortFrom(f.node.Addr(), f.node.Port()+1), f.backend)
			turned := transport(none, f.backend, f.node)
			wrong := sent.bytes()
			wrong[ethLen] = 0x95 // neither version
			for what, in := range map[string][]byte{
				"about another port":            quote(f.node.Addr(), other, 548),
				"about a packet that came here": quote(f.node.Addr(), turned, 548),
				"to somebody else":              quote(podA.addr(family), sent, 548),
				"cut before the ports":          quote(f.node.Addr(), sent, header+3),
				"cut in the header":             quote(f.node.Addr(), sent, header-1),
				"of nothing":                    quote(f.node.Addr(), sent, 0),
			} {
				got := outcome{}
				var err error
				r.stage.do(func() { got, err = r.run(run{program: bpfProgFromWire, in: in}) })
				if err != nil {
					t.Fatal(err)
				}
				if got.verdict == verdictRedirect && what != "to somebody else" {
					t.Errorf("%s, type %d code %d %s is translated to\n%s", name, kind[0], kind[1], what, layers(got.out))
				}
			}
			// Who guesses everything is passed on, to whom the connection is of, who can tell; nothing else happens.
			got := outcome{}
			r.stage.do(func() { got, _ = r.run(run{program: bpfProgFromWire, in: quote(f.node.Addr(), sent, 548)}) })
			if got.verdict == verdictRedirect {
				fits++
			}
		}
		if fits == 0 {
			t.Errorf("%s: not even errors that fit are translated: nothing is shown", name)
		}
		if after := r.tables(t); !maps.Equal(before, after) {
			t.Errorf("%s: the tables have changed from\n%v to\n%v", name, before, after)
		}
	})
	// A pod tells of packets that it has got, not of others'.
	for _, family := range families {
		f := flowOf(family)
		kind := []byte{3, 3}
		if family == 6 {
			kind = []byte{1, 4}
		}
		p := quoting(fromPod(), podA.addr(family), f.node.Addr(), kind[0], kind[1], 0, eth(MAC{}, MAC{}).ip(f.node.Addr(), f.backend.Addr()).udp(f.node.Port(), f.backend.Port()), 28+(family-4)*10)
		r.checkOne(t, drops("", podSends(p), uint32(bpfDropReasonDROP_FORGED_ERROR)))
	}
}
