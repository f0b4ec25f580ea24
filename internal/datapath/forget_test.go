package datapath_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Remembered finds all entries of the addresses of local pods, and ForgetPods removes them.
func TestWhatIsRememberedOfPods(t *testing.T) {
	testenv.Root(t)
	d := harness.OpenTables(t, config.Datapath{Root: fixtures.Bpffs(t), Services: true}, fixtures.TestLog(t))
	address := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	ranges := []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("fd00:2::/64")}
	server, client, listed, sticky, other := address("10.1.2.2"), address("10.1.2.3"), address("fd00:2::4"), address("10.1.2.5"), address("10.1.3.2")
	put := func(m *ebpf.Map, key, value any) {
		t.Helper()
		if err := m.Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	there, back := fixtures.ClientTo(netip.AddrPortFrom(server, 53), fixtures.ProtoUDP, 20000, 7)
	fixtures.Half{}.Put(t, d.Objects.Maps.Nat, there)
	fixtures.Half{}.Put(t, d.Objects.Maps.Nat, back)
	there, back = fixtures.ClientTo(netip.AddrPortFrom(other, 53), fixtures.ProtoUDP, 20002, 7)
	there.Key.Source, back.Value.Destination = bpf.AddressOf(client), bpf.AddressOf(client)
	fixtures.Half{}.Put(t, d.Objects.Maps.NatPending, there)
	fixtures.Half{}.Put(t, d.Objects.Maps.NatPending, back)
	put(d.Objects.Maps.NatPods, bpf.AddressOf(listed), uint64(fixtures.SomeTime))
	put(d.Objects.Maps.Affinities, bpf.Client{Address: bpf.AddressOf(sticky), Service: 1}, bpf.Affinity{})
	put(d.Objects.Maps.Affinities, bpf.Client{Address: bpf.AddressOf(other), Service: 1}, bpf.Affinity{})
	// A namespace ID that reads as an address.
	put(d.Objects.Maps.Affinities, bpf.Client{Address: bpf.AddressOf(address("10.1.2.9")), Service: 1, Kind: uint32(bpf.ClientKindCLIENT_NETNS)}, bpf.Affinity{})

	want := []netip.Addr{server, client, sticky, listed}
	got, err := d.Remembered(ranges)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("remembered are %v, want %v: %v", got, want, err)
	}
	if removed, err := d.ForgetPods(got); err != nil || removed != 6 {
		t.Errorf("%d entries were removed, want 6: %v", removed, err)
	}
	if got, err := d.Remembered(ranges); err != nil || len(got) != 0 {
		t.Errorf("remembered are still %v: %v", got, err)
	}
	if n, err := table.Count(d.Objects.Maps.Affinities); err != nil || n != 2 {
		t.Errorf("%d affinities are left, want 2: %v", n, err)
	}
}
