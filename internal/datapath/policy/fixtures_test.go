package policy

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/policy"
)

// tables are the policy maps with their table.
type tables struct {
	*load.Objects
	Policies *Table
}

// openTable opens the policy maps.
func openTable(tb testing.TB, cfg config.Datapath) *tables {
	tb.Helper()
	cfg.Policy = true
	o := testmaps.Open(tb, cfg)
	return &tables{o, New(&o.Maps, o.Generation)}
}

// restart opens the maps of a killed agent, which has closed nothing.
func restart(tb testing.TB, d *tables, cfg config.Datapath) *tables {
	tb.Helper()
	if err := d.Commit(); err != nil {
		tb.Fatal(err)
	}
	cfg.Root = d.Config.Root
	return openTable(tb, cfg)
}

const (
	setWeb    = policy.Set(101)
	setDB     = policy.Set(102)
	client    = policy.IdentityPod | 11
	stranger  = policy.IdentityPod | 12
	office    = policy.Identity(21)
	portsWeb  = policy.Ports(31)
	portsAll  = policy.Ports(32)
	policyWeb = policy.Policy(41)
)

// someTables have an entry of every kind: clients may connect to PodA at port 80, and the office at any port; PodA2
// may send nothing.
func someTables() *policy.Tables {
	return &policy.Tables{
		Pods: map[netip.Addr]policy.Sets{
			fixtures.PodA.V4: {Ingress: setWeb}, fixtures.PodA.V6: {Ingress: setWeb}, fixtures.PodA2.V4: {Egress: setDB},
		},
		Identities: map[netip.Addr]policy.Identity{
			fixtures.PodB.V4: client, fixtures.PodB.V6: client, fixtures.PodC.V4: stranger, fixtures.NodeA.V4: policy.IdentityNode,
		},
		Blocks: map[netip.Prefix]policy.Identity{
			fixtures.Prefix("203.0.113.0/24"): office, fixtures.Prefix("203.0.113.64/26"): policy.IdentityUnknown, fixtures.Prefix("2001:db8::/32"): office,
			fixtures.Prefix("192.0.2.1/32"): office,
		},
		Policies: map[policy.Peer]policy.Ports{
			{Set: setWeb, Identity: client}: portsWeb, {Set: setWeb, Identity: office}: portsAll,
			{Set: setDB, Identity: policy.IdentityUnknown}: 0,
		},
		Ports: map[policy.PortPrefix]policy.Policy{
			{Ports: portsWeb, Bits: 24, Protocol: uint8(cluster.TCP), Port: 80}:   policyWeb,
			{Ports: portsWeb, Bits: 21, Protocol: uint8(cluster.TCP), Port: 8080}: policyWeb,
			{Ports: portsAll}: policyWeb,
		},
	}
}

var compareTables = cmp.Options{
	fixtures.CompareAddresses,
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreFields(policy.Tables{}, "Names", "Selected"),
}

// cloneTables returns a copy that can be changed.
func cloneTables(t *policy.Tables) *policy.Tables {
	return &policy.Tables{
		Pods: cloned(t.Pods), Identities: cloned(t.Identities), Blocks: cloned(t.Blocks),
		Policies: cloned(t.Policies), Ports: cloned(t.Ports), Peers: t.Peers,
	}
}

// cloned is maps.Clone, but never nil.
func cloned[K comparable, V any](m map[K]V) map[K]V {
	clone := make(map[K]V, len(m))
	maps.Copy(clone, m)
	return clone
}

// holdsTables fails the test unless the maps have exactly these tables.
func holdsTables(tb testing.TB, p *Table, want *policy.Tables) {
	tb.Helper()
	got, err := p.All()
	if err != nil {
		tb.Fatal(err)
	}
	together := cloneTables(want)
	maps.Insert(together.Identities, want.Peers.All())
	together.Peers = nil
	if diff := cmp.Diff(together, got, compareTables); diff != "" {
		tb.Errorf("tables (-wanted +kernel):\n%s", diff)
	}
}

// syncs applies tables and fails the test unless it changes so many entries.
func syncs(tb testing.TB, p *Table, t *policy.Tables, want int) {
	tb.Helper()
	if changed, err := p.Sync(t); err != nil || changed != want {
		tb.Errorf("%d entries were changed, expected %d: %v", changed, want, err)
	}
}
