package fwd_test

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// tables gives what the tables of connections hold.
func tables(r *harness.Harness, tb testing.TB) map[bpf.Tuple]bpf.NatEntry {
	tb.Helper()
	all := map[bpf.Tuple]bpf.NatEntry{}
	for _, m := range []*ebpf.Map{r.D.Objects.Maps.Nat, r.D.Objects.Maps.NatPending} {
		if err := table.Read(m, func(k *bpf.Tuple, v *bpf.NatEntry) { all[*k] = *v }); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

// Forged errors change no table, whatever they quote. Errors that match no connection go nowhere else than
// where they are sent.
func TestForgedErrors(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		r.Enter(t, f, protocol)
		none := fixtures.Eth(fwd.MAC{}, fwd.MAC{})
		sent := transport(none, f.Node, f.Backend)
		kinds := [][2]byte{{3, 0}, {3, 1}, {3, 3}, {3, 4}, {4, 0}, {5, 0}, {11, 0}, {12, 0}}
		if family == 6 {
			kinds = [][2]byte{{1, 0}, {1, 4}, {2, 0}, {3, 0}, {4, 0}, {137, 0}}
		}
		before := tables(r, t)
		fits := 0
		for _, kind := range kinds {
			quote := func(to netip.Addr, about fixtures.Packet, limit int) []byte {
				return fixtures.Quoting(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), fixtures.External.Addr(family), to, kind[0], kind[1], 68, about, limit).Bytes()
			}
			header := fixtures.Ipv4Len
			if family == 6 {
				header = fixtures.Ipv6Len
			}
			other := transport(none, netip.AddrPortFrom(f.Node.Addr(), f.Node.Port()+1), f.Backend)
			turned := transport(none, f.Backend, f.Node)
			wrong := sent.Bytes()
			wrong[fixtures.EthLen] = 0x95 // neither version
			for what, in := range map[string][]byte{
				"about another port":            quote(f.Node.Addr(), other, 548),
				"about a packet that came here": quote(f.Node.Addr(), turned, 548),
				"to another pod":                quote(fixtures.PodA.Addr(family), sent, 548),
				"cut before the ports":          quote(f.Node.Addr(), sent, header+3),
				"cut in the header":             quote(f.Node.Addr(), sent, header-1),
				"of nothing":                    quote(f.Node.Addr(), sent, 0),
			} {
				got := harness.Outcome{}
				var err error
				r.Netns.Do(func() { got, err = r.Run(harness.Run{Program: bpf.ProgFromWire, In: in}) })
				if err != nil {
					t.Fatal(err)
				}
				if got.Verdict == harness.VerdictRedirect && what != "to another pod" {
					t.Errorf("%s, type %d code %d %s is translated to\n%s", name, kind[0], kind[1], what, fixtures.Layers(got.Out))
				}
			}
			// An error that matches everything is forwarded to the connection's owner; nothing else changes.
			got := harness.Outcome{}
			r.Netns.Do(func() { got, _ = r.Run(harness.Run{Program: bpf.ProgFromWire, In: quote(f.Node.Addr(), sent, 548)}) })
			if got.Verdict == harness.VerdictRedirect {
				fits++
			}
		}
		if fits == 0 {
			t.Errorf("%s: not even errors that fit are translated: nothing is shown", name)
		}
		if after := tables(r, t); !maps.Equal(before, after) {
			t.Errorf("%s: the tables have changed from\n%v to\n%v", name, before, after)
		}
	})
	// A pod may report only packets that it has received.
	for _, family := range fixtures.Families {
		f := fixtures.FlowOf(family)
		kind := []byte{3, 3}
		if family == 6 {
			kind = []byte{1, 4}
		}
		p := fixtures.Quoting(fixtures.FromPod(), fixtures.PodA.Addr(family), f.Node.Addr(), kind[0], kind[1], 0, fixtures.Eth(fwd.MAC{}, fwd.MAC{}).Ip(f.Node.Addr(), f.Backend.Addr()).Udp(f.Node.Port(), f.Backend.Port()), 28+(family-4)*10)
		r.CheckOne(t, harness.Drops("", harness.PodSends(p), uint32(bpf.DropReasonDROP_FORGED_ERROR)))
	}
}
