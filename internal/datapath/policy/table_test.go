package policy

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// The maps hold what was written; only differences are written, and unwanted entries are deleted.
func TestPoliciesSync(t *testing.T) {
	d := openTable(t, config.Datapath{})
	want := someTables()
	syncs(t, d.Policies, want, 17)
	holdsTables(t, d.Policies, want)
	syncs(t, d.Policies, someTables(), 0)
	counts := PolicyCounts{Pods: 3, Identities: 4, Blocks: 4, Policies: 3, Ports: 3}
	if got := d.Policies.Counts(); got != counts {
		t.Errorf("there are %s", got)
	}

	want = cloneTables(want) // applied tables must not change
	want.Identities[fixtures.PodC.V4] = client
	want.Pods[fixtures.PodA.V4] = policy.Sets{Ingress: setWeb, Egress: setDB}
	delete(want.Blocks, fixtures.Prefix("2001:db8::/32"))
	want.Policies[policy.Peer{Set: setWeb, Identity: policy.IdentityPod}] = portsWeb
	syncs(t, d.Policies, want, 4)
	holdsTables(t, d.Policies, want)

	empty := &policy.Tables{}
	syncs(t, d.Policies, empty, 17)
	holdsTables(t, d.Policies, empty)
	if got := d.Policies.Counts(); got != (PolicyCounts{}) {
		t.Errorf("there are %s", got)
	}
}

// Connections are re-evaluated if something may have become forbidden, and the flow cache is flushed if other pods
// are selected; otherwise neither happens.
func TestPoliciesAdvance(t *testing.T) {
	d := openTable(t, config.Datapath{})
	now := someTables()
	syncs(t, d.Policies, now, 17)
	for _, c := range []struct {
		name               string
		change             func(*policy.Tables)
		flowCache, revised bool
	}{
		{name: "nothing", change: func(*policy.Tables) {}},
		{name: "a new address of a known identity", flowCache: true, change: func(t *policy.Tables) { t.Identities[fixtures.PodT.V4] = client }},
		{name: "a new identity with what it is allowed", flowCache: true, change: func(t *policy.Tables) {
			t.Identities[fixtures.PodFar.V4] = policy.IdentityPod | 13
			t.Policies[policy.Peer{Set: setWeb, Identity: policy.IdentityPod | 13}] = portsWeb
		}},
		{name: "a new block, which may be an exception", revised: true, change: func(t *policy.Tables) { t.Blocks[fixtures.Prefix("198.51.100.0/24")] = office }},
		{name: "a new port", change: func(t *policy.Tables) { t.Ports[policy.PortPrefix{Ports: portsWeb, Bits: 8, Protocol: 17}] = policyWeb }},
		{name: "a new single address, likewise", revised: true, change: func(t *policy.Tables) { t.Blocks[fixtures.Prefix("198.51.100.1/32")] = office }},
		{name: "another identity", flowCache: true, revised: true, change: func(t *policy.Tables) { t.Identities[fixtures.PodT.V4] = stranger }},
		{name: "an address is gone", flowCache: true, revised: true, change: func(t *policy.Tables) { delete(t.Identities, fixtures.PodT.V4) }},
		{name: "a block is gone", revised: true, change: func(t *policy.Tables) { delete(t.Blocks, fixtures.Prefix("198.51.100.0/24")) }},
		{name: "a port is gone", revised: true, change: func(t *policy.Tables) {
			delete(t.Ports, policy.PortPrefix{Ports: portsWeb, Bits: 8, Protocol: 17})
		}},
		{name: "a peer is gone", revised: true, change: func(t *policy.Tables) {
			delete(t.Policies, policy.Peer{Set: setWeb, Identity: policy.IdentityPod | 13})
		}},
		{name: "another set", revised: true, flowCache: true, change: func(t *policy.Tables) { t.Pods[fixtures.PodA.V4] = policy.Sets{Ingress: setDB} }},
		{name: "a selected pod", revised: true, flowCache: true, change: func(t *policy.Tables) { t.Pods[fixtures.PodA2.V6] = policy.Sets{Egress: setDB} }},
		{name: "a pod that is no longer selected", revised: true, flowCache: true, change: func(t *policy.Tables) { delete(t.Pods, fixtures.PodA2.V6) }},
	} {
		now = cloneTables(now)
		c.change(now)
		tables, revision := testmaps.Advances(t, d.Objects)
		if _, err := d.Policies.Sync(now); err != nil {
			t.Fatal(err)
		}
		tables2, revision2 := testmaps.Advances(t, d.Objects)
		if (tables != tables2) != c.flowCache || (revision != revision2) != c.revised {
			t.Errorf("%s: flow cache flushed: %t, connections re-evaluated: %t", c.name, tables != tables2, revision != revision2)
		}
		holdsTables(t, d.Policies, now)
	}
}

// A restarted agent keeps correct entries and repairs others. Connections are re-evaluated, since the last agent may
// have been killed before it could do so.
func TestPoliciesRestart(t *testing.T) {
	d := openTable(t, config.Datapath{})
	syncs(t, d.Policies, someTables(), 17)
	next := restart(t, d, config.Datapath{})
	tables, revision := testmaps.Advances(t, next.Objects)
	syncs(t, next.Policies, someTables(), 0)
	tables2, revision2 := testmaps.Advances(t, next.Objects)
	if tables != tables2 {
		t.Error("a restart that changes nothing flushes the flow cache")
	}
	if revision2 != revision+1 {
		t.Errorf("revision %d follows %d", revision2, revision)
	}
	syncs(t, next.Policies, someTables(), 0)
	if _, revision3 := testmaps.Advances(t, next.Objects); revision3 != revision2 {
		t.Error("connections are re-evaluated although nothing has changed")
	}
	want := someTables()
	want.Pods[fixtures.PodA.V4] = denyAll
	delete(want.Identities, fixtures.PodC.V4)
	next = restart(t, next, config.Datapath{})
	syncs(t, next.Policies, want, 2)
	holdsTables(t, next.Policies, want)
}

// A single-address ipBlock may become a pod's address and the other way around, also after a restart.
func TestPoliciesSingleBecomesPod(t *testing.T) {
	d := openTable(t, config.Datapath{})
	one, other := someTables(), someTables()
	other.Identities[fixtures.Addr("192.0.2.1")] = client
	delete(other.Blocks, fixtures.Prefix("192.0.2.1/32"))
	other.Blocks[netip.PrefixFrom(fixtures.PodB.V4, 32)] = office
	delete(other.Identities, fixtures.PodB.V4)
	for range 2 {
		for _, tables := range []*policy.Tables{one, other, one} {
			if _, err := d.Policies.Sync(tables); err != nil {
				t.Fatal(err)
			}
			holdsTables(t, d.Policies, tables)
			syncs(t, d.Policies, cloneTables(tables), 0)
		}
		d = restart(t, d, config.Datapath{})
	}
	syncs(t, d.Policies, one, 0)
}

// Unchanged maps are not compared, since they may have 100,000 addresses.
func TestPoliciesSameMaps(t *testing.T) {
	d := openTable(t, config.Datapath{})
	tables := someTables()
	syncs(t, d.Policies, tables, 17)
	tables.Blocks[fixtures.Prefix("192.0.2.2/32")] = office // never done otherwise
	syncs(t, d.Policies, tables, 0)
	syncs(t, d.Policies, cloneTables(tables), 1)
}

// A flush of the flow cache that failed, after the node's addresses have changed, is done by the next Sync.
func TestPoliciesFlushAfterFailure(t *testing.T) {
	d := openTable(t, config.Datapath{})
	tables := someTables()
	syncs(t, d.Policies, tables, 17)
	before, _ := testmaps.Advances(t, d.Objects)
	syncs(t, d.Policies, cloneTables(tables), 0)
	if now, _ := testmaps.Advances(t, d.Objects); now != before {
		t.Error("the flow cache is flushed although nothing has changed")
	}

	healthy := d.Policies.generation
	d.Policies.generation = &table.Generation{M: d.Objects.Maps.Endpoints} // has no numbers
	tables = cloneTables(tables)
	tables.Identities[fixtures.PodT.V4] = client
	if _, err := d.Policies.Sync(tables); err == nil {
		t.Error("advancing the generation fails: no error")
	}
	d.Policies.generation = healthy
	syncs(t, d.Policies, tables, 0)
	if now, _ := testmaps.Advances(t, d.Objects); now == before {
		t.Error("a pending flush is not done")
	}
}

// The first revision follows those of conntrack entries from before `generation` was created.
func TestPoliciesFirstRevision(t *testing.T) {
	d := openTable(t, config.Datapath{})
	if err := d.Objects.Maps.Conntrack.Put(bpf.Tuple{Protocol: 6}, bpf.CtEntry{Revision: 7}); err != nil {
		t.Fatal(err)
	}
	syncs(t, d.Policies, &policy.Tables{}, 0)
	if _, revision := testmaps.Advances(t, d.Objects); revision <= 7 {
		t.Errorf("the first revision is %d", revision)
	}
}

// A resized map keeps its entries; if they do not fit, selected pods are default-deny until the next Sync.
func TestPoliciesResized(t *testing.T) {
	d := openTable(t, config.Datapath{})
	syncs(t, d.Policies, someTables(), 17)
	larger := restart(t, d, config.Datapath{Sizes: config.Sizes{Identities: 1000, Policies: 1000, Conntrack: 100}})
	holdsTables(t, larger.Policies, someTables())
	smaller := restart(t, larger, config.Datapath{Sizes: config.Sizes{Identities: 2}})
	got, err := smaller.Policies.All()
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr]policy.Sets{
		fixtures.PodA.V4: {Ingress: policy.DenyAll}, fixtures.PodA.V6: {Ingress: policy.DenyAll}, fixtures.PodA2.V4: {Egress: policy.DenyAll},
	}
	if diff := cmp.Diff(want, got.Pods, compareTables); diff != "" {
		t.Errorf("pods (-wanted +kernel):\n%s", diff)
	}
}

// Closed pods are default-deny until they are released; then the tables apply.
func TestPoliciesClose(t *testing.T) {
	d := openTable(t, config.Datapath{})
	syncs(t, d.Policies, someTables(), 17)
	pods := func(name string, want map[netip.Addr]policy.Sets) {
		t.Helper()
		got, err := d.Policies.All()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Pods, compareTables); diff != "" {
			t.Errorf("%s (-wanted +kernel):\n%s", name, diff)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tables, revision := testmaps.Advances(t, d.Objects)
	do(d.Policies.Close([]netip.Addr{fixtures.PodA.V4, fixtures.NoPod.V4, fixtures.NoPod.V6}))
	if tables2, revision2 := testmaps.Advances(t, d.Objects); tables == tables2 || revision == revision2 {
		t.Error("closing does not flush the flow cache")
	}
	want := someTables().Pods
	want[fixtures.PodA.V4], want[fixtures.NoPod.V4], want[fixtures.NoPod.V6] = denyAll, denyAll, denyAll
	pods("closed", want)

	changed := someTables()
	changed.Pods[fixtures.PodA.V4] = policy.Sets{Ingress: setDB}
	syncs(t, d.Policies, changed, 0)
	pods("closed over a Sync", want)

	do(d.Policies.Release([]netip.Addr{fixtures.PodA.V4, fixtures.NoPod.V4, fixtures.PodA2.V4, fixtures.PodT.V4}))
	want[fixtures.PodA.V4] = policy.Sets{Ingress: setDB}
	delete(want, fixtures.NoPod.V4)
	pods("released", want)
	do(d.Policies.Release([]netip.Addr{fixtures.NoPod.V6}))
	syncs(t, d.Policies, changed, 0)
	holdsTables(t, d.Policies, changed)
}

// If entries do not fit, the pods that they concern are default-deny in that direction, and no others. They are
// applied as soon as they fit.
func TestPoliciesFull(t *testing.T) {
	many := func(t *policy.Tables, identity policy.Identity) {
		for i := range 20 {
			t.Identities[netip.AddrFrom4([4]byte{198, 18, 0, byte(i)})] = identity
		}
	}
	for _, c := range []struct {
		name   string
		sizes  config.Sizes
		change func(*policy.Tables)
		full   string
		sets   []policy.Set
	}{
		{"identities", config.Sizes{Identities: 8}, func(t *policy.Tables) { many(t, client) }, bpf.MapIdentities, []policy.Set{setWeb}},
		{"identities without rules", config.Sizes{Identities: 8}, func(t *policy.Tables) {
			clear(t.Identities) // they might not fit
			many(t, stranger)
		}, bpf.MapIdentities, nil},
		{"blocks", config.Sizes{Identities: 8}, func(t *policy.Tables) {
			for i := range 20 {
				t.Blocks[netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i), 0}), 24)] = office
			}
		}, bpf.MapIdentityCidrs, []policy.Set{setWeb}},
		{"policies", config.Sizes{Policies: 16}, func(t *policy.Tables) {
			for i := range 30 {
				t.Policies[policy.Peer{Set: setDB, Identity: policy.IdentityPod | policy.Identity(100+i)}] = portsAll
			}
		}, bpf.MapPolicies, []policy.Set{setDB}},
		{"ports", config.Sizes{Policies: 16}, func(t *policy.Tables) {
			for i := range 20 {
				t.Ports[policy.PortPrefix{Ports: portsWeb, Bits: 24, Protocol: 17, Port: uint16(i)}] = policyWeb
			}
		}, bpf.MapPolicyPorts, []policy.Set{setWeb}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openTable(t, config.Datapath{Sizes: c.sizes})
			syncs(t, d.Policies, someTables(), 17)
			over := someTables()
			c.change(over)
			for range 2 { // also when tried again
				_, err := d.Policies.Sync(over)
				var full *table.FullError
				var incomplete *SyncError
				if !errors.As(err, &full) || full.Map != c.full || full.Flag == "" || !errors.As(err, &incomplete) {
					t.Fatalf("the error is %v", err)
				}
				got, errAll := d.Policies.All()
				if errAll != nil {
					t.Fatal(errAll)
				}
				want := maps.Clone(over.Pods)
				var pods []netip.Addr
				for a, sets := range want {
					if slices.Contains(c.sets, sets.Ingress) {
						sets.Ingress = policy.DenyAll
					}
					if slices.Contains(c.sets, sets.Egress) {
						sets.Egress = policy.DenyAll
					}
					if want[a] != sets {
						pods = append(pods, a)
					}
					want[a] = sets
				}
				slices.SortFunc(pods, netip.Addr.Compare)
				if diff := cmp.Diff(want, got.Pods, compareTables); diff != "" {
					t.Errorf("pods (-wanted +kernel):\n%s", diff)
				}
				if diff := cmp.Diff(&SyncError{Sets: c.sets, Pods: pods}, &SyncError{Sets: incomplete.Sets, Pods: incomplete.Pods}, compareTables); diff != "" {
					t.Errorf("error (-wanted +got):\n%s", diff)
				}
			}
			if _, err := d.Policies.Sync(someTables()); err != nil {
				t.Fatal(err)
			}
			holdsTables(t, d.Policies, someTables())
		})
	}
}

// Tables that fit, but not next to the old ones, are applied after one Sync.
func TestPoliciesMakeRoom(t *testing.T) {
	d := openTable(t, config.Datapath{Sizes: config.Sizes{Identities: 64}})
	tables := func(second byte) *policy.Tables {
		all := someTables()
		all.Identities = map[netip.Addr]policy.Identity{}
		for i := range 60 {
			all.Identities[netip.AddrFrom4([4]byte{198, second, 0, byte(i)})] = client
			all.Blocks[netip.PrefixFrom(netip.AddrFrom4([4]byte{198, second, byte(i), 0}), 25)] = office
		}
		return all
	}
	for _, second := range []byte{18, 19} {
		if _, err := d.Policies.Sync(tables(second)); err != nil {
			t.Fatal(err)
		}
		holdsTables(t, d.Policies, tables(second))
	}
}

// Blocks are written from the longest on, so that no address gets the identity of a larger block while its own is
// missing.
func TestPoliciesLongestBlocksFirst(t *testing.T) {
	d := openTable(t, config.Datapath{Sizes: config.Sizes{Identities: 4}})
	want := &policy.Tables{Blocks: map[netip.Prefix]policy.Identity{}}
	for bits := 8; bits < 32; bits++ {
		want.Blocks[netip.PrefixFrom(fixtures.Addr("10.1.1.3"), bits).Masked()] = office
	}
	var full *table.FullError
	if _, err := d.Policies.Sync(want); !errors.As(err, &full) {
		t.Fatalf("the error is %v", err)
	}
	got, err := d.Policies.All()
	if err != nil {
		t.Fatal(err)
	}
	for bits := 28; bits < 32; bits++ {
		if p := netip.PrefixFrom(fixtures.Addr("10.1.1.3"), bits).Masked(); len(got.Blocks) != 4 || got.Blocks[p] != office {
			t.Errorf("%s is not among those that are there: %v", p, got.Blocks)
		}
	}
}

// IPv4 addresses are not in IPv6 ipBlocks, although maps have them as IPv4-mapped addresses.
func TestPoliciesOfAllIPv6(t *testing.T) {
	d := openTable(t, config.Datapath{})
	for _, p := range []string{"::/0", "::/64", "::fffe:0:0/95"} {
		want := someTables()
		want.Blocks[fixtures.Prefix(p)] = office
		if _, err := d.Policies.Sync(want); err != nil {
			t.Fatal(err)
		}
		holdsTables(t, d.Policies, want)
		var identity uint32
		for a, expected := range map[netip.Addr]policy.Identity{
			fixtures.Addr("198.51.100.1"): policy.IdentityUnknown, fixtures.Addr("::1:2"): office, fixtures.Addr("203.0.113.1"): office,
		} {
			if !fixtures.Prefix(p).Contains(a) && a.Is6() {
				continue
			}
			if err := d.Objects.Maps.IdentityCidrs.Lookup(bpf.IdentityCidrKey{PrefixLen: 128, Address: bpf.AddressOf(a)}, &identity); err != nil || policy.Identity(identity) != expected {
				t.Errorf("with %s, %s is %d: %v", p, a, identity, err)
			}
		}
		want = cloneTables(want)
		want.Blocks[fixtures.Prefix("0.0.0.0/0")] = office
		syncs(t, d.Policies, want, 1)
		holdsTables(t, d.Policies, want)
	}
}
