package harness

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Enter adds both directions of a flow between wires to a NAT map, as if just created.
func (r *Harness) Enter(tb testing.TB, f fixtures.Visit, protocol uint8) {
	tb.Helper()
	r.EnterWith(tb, f, protocol, fixtures.FlagWire)
}

// EnterWith is Enter with more flags.
func (r *Harness) EnterWith(tb testing.TB, f fixtures.Visit, protocol uint8, flags bpf.NatFlag) {
	tb.Helper()
	now, err := table.Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	forth := fixtures.ConnectionOf(f.Node, f.Backend, flags|bpf.NatFlagNAT_INITIATOR)
	back := fixtures.ConnectionOf(f.Frontend, f.Client, flags)
	forth.Seen, back.Seen = uint64(now), uint64(now)
	for key, value := range map[bpf.Tuple]bpf.NatEntry{
		bpf.TupleOf(f.Client, f.Frontend, protocol): forth,
		bpf.TupleOf(f.Backend, f.Node, protocol):    back,
	} {
		if err := r.D.Objects.Maps.Nat.Put(key, value); err != nil {
			tb.Fatal(err)
		}
	}
}

// NewServices is node A with Services, one uplink and a NodePort whose backend is PodB.
func NewServices(tb testing.TB, cfg config.Datapath) *Harness {
	tb.Helper()
	cfg.Services, cfg.EBPFRouting, cfg.Masquerade = true, true, true
	r := New(tb, cfg)
	if _, err := r.D.Uplinks.Sync(map[int]fwd.Uplink{r.Netns.Devices["eth0"]: {IPv4: fixtures.NodeA.V4, IPv6: fixtures.NodeA.V6, MAC: fixtures.NodeA.Mac, MTU: 1500}}); err != nil {
		tb.Fatal(err)
	}
	for _, family := range fixtures.Families {
		r.Serve(tb, fixtures.FlowOf(family).Frontend, 0, fixtures.FlowOf(family).Backend)
	}
	return r
}

// Serve makes every protocol of a frontend answer with these backends, on both sides.
func (r *Harness) Serve(tb testing.TB, frontend netip.AddrPort, flags bpf.ServiceFlag, backends ...netip.AddrPort) {
	tb.Helper()
	set := r.NextSet
	r.NextSet++
	for i, b := range backends {
		if err := r.D.Objects.Maps.Backends.Put(bpf.BackendKey{Set: set, Index: uint32(i)},
			bpf.BackendOf(b)); err != nil {
			tb.Fatal(err)
		}
	}
	s := bpf.BackendSet{Id: set, Count: uint16(len(backends))}
	for _, protocol := range []uint8{fixtures.ProtoTCP, fixtures.ProtoUDP, fixtures.ProtoSCTP} {
		if err := r.D.Objects.Maps.Services.Put(
			bpf.Frontend{Address: bpf.AddressOf(frontend.Addr()), Port: bpf.NetworkOrder(frontend.Port()), Protocol: protocol},
			bpf.Service{Id: set, Flags: uint16(flags), Internal: s, External: s}); err != nil {
			tb.Fatal(err)
		}
	}
}

func Untouched(name string, in []byte) PacketCase {
	return Passes(name, Run{Program: bpf.ProgWireXdp, In: in})
}
