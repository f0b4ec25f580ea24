package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// Whatever tables have of the addresses of this node's pods is found, and goes with them.
func TestWhatIsRememberedOfPods(t *testing.T) {
	testenv.Root(t)
	d := adoptTables(t, Config{Root: bpffs(t), Services: true}, testLog(t))
	address := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	ranges := []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("fd00:2::/64")}
	server, client, listed, sticky, other := address("10.1.2.2"), address("10.1.2.3"), address("fd00:2::4"), address("10.1.2.5"), address("10.1.3.2")
	put := func(m *ebpf.Map, key, value any) {
		t.Helper()
		if err := m.Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	there, back := clientTo(netip.AddrPortFrom(server, 53), protoUDP, 20000, 7)
	half{}.put(t, d.objects.maps.Nat, there)
	half{}.put(t, d.objects.maps.Nat, back)
	there, back = clientTo(netip.AddrPortFrom(other, 53), protoUDP, 20002, 7)
	there.key.Source, back.value.Destination = addressOf(client), addressOf(client)
	half{}.put(t, d.objects.maps.NatPending, there)
	half{}.put(t, d.objects.maps.NatPending, back)
	put(d.objects.maps.NatPods, addressOf(listed), uint64(someTime))
	put(d.objects.maps.Affinities, bpfClient{Address: addressOf(sticky), Service: 1}, bpfAffinity{})
	put(d.objects.maps.Affinities, bpfClient{Address: addressOf(other), Service: 1}, bpfAffinity{})
	// The number of a namespace that reads as an address.
	put(d.objects.maps.Affinities, bpfClient{Address: addressOf(address("10.1.2.9")), Service: 1, Kind: uint32(bpfClientKindCLIENT_NETNS)}, bpfAffinity{})

	want := []netip.Addr{server, client, sticky, listed}
	got, err := d.Remembered(ranges)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("remembered are %v, want %v: %v", got, want, err)
	}
	if removed, err := d.ForgetPods(got); err != nil || removed != 6 {
		t.Errorf("%d entries are removed, want 6: %v", removed, err)
	}
	if got, err := d.Remembered(ranges); err != nil || len(got) != 0 {
		t.Errorf("remembered are still %v: %v", got, err)
	}
	if n, err := countEntries(d.objects.maps.Affinities); err != nil || n != 2 {
		t.Errorf("%d affinities are left, want 2: %v", n, err)
	}
}
