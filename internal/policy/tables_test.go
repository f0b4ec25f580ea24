package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// What all peers, or all pods, are allowed is stored once for each set, whatever the number of pods.
func TestDefaultsAreThereOnce(t *testing.T) {
	everyPod := cluster.PolicyPeer{Namespaces: &cluster.Selector{}}
	s, local := thousand(100)
	for _, p := range s.NetworkPolicies {
		p.Ingress = []cluster.PolicyRule{{Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, First: 80, Last: 80}}}, {Peers: []cluster.PolicyPeer{everyPod}}}
		p.Egress = []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Block: netip.MustParsePrefix("0.0.0.0/0")}}}}
	}
	tables, _ := NewCompiler("n1").Compile(s, local)
	// Each of the 100 policies makes two sets: for ingress with an entry for unknown identities and one for pods, for
	// egress with one for unknown identities.
	if len(tables.Policies) != 300 || len(tables.Blocks) != 0 {
		t.Errorf("%d entries and %d blocks, want 300 and none", len(tables.Policies), len(tables.Blocks))
	}
	for a, identity := range tables.Peers.All() {
		if identity != IdentityPod {
			t.Fatalf("%s is %x, want that of an unknown pod", a, identity)
		}
	}

	// Pods that are allowed nothing share one set without entries.
	for _, p := range s.NetworkPolicies {
		p.Ingress, p.Egress = nil, nil
	}
	tables, _ = NewCompiler("n1").Compile(s, local)
	sets := map[Sets]bool{}
	for _, of := range tables.Pods {
		sets[of] = true
	}
	if len(sets) != 1 || len(tables.Pods) != 100 || len(tables.Policies) != 0 || len(tables.Ports) != 0 {
		t.Errorf("%d pods with %d sets, %d entries, %d ports; want one empty set", len(tables.Pods), len(sets), len(tables.Policies), len(tables.Ports))
	}
}

// Policies that select no pod of this node are not in its tables, which have the node itself in any case.
func TestPoliciesOfOthersCostNothing(t *testing.T) {
	s, _ := thousand(0)
	c := NewCompiler("n1")
	tables, problems := c.Compile(s, Local{Addresses: addrs("192.168.60.11"), Pods: []LocalPod{{Pod: cluster.Key{Namespace: "elsewhere", Name: "p"}, Addresses: addrs("10.9.9.9")}}})
	if want := map[netip.Addr]Identity{netip.MustParseAddr("192.168.60.11"): IdentityNode}; !maps.Equal(tables.Identities, want) {
		t.Errorf("identities %v, want %v", tables.Identities, want)
	}
	if n := len(tables.Pods) + tables.Peers.Len() + len(tables.Blocks) + len(tables.Policies) + len(tables.Ports) + len(tables.Names); n != 0 || len(problems) != 0 {
		t.Errorf("got %+v, problems %v", tables, problems)
	}
	if len(c.conditions.all) != 0 {
		t.Errorf("%d conditions are kept", len(c.conditions.all))
	}
}

// Two policies with the same rules are distinct.
func TestSameRulesOfTwoPolicies(t *testing.T) {
	runCases(t, []testCase{{
		name: "each allows its own pods",
		policies: `
{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]}
---
{podSelector: {matchLabels: {app: client}}, ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]}`,
		want: `
			web < client TCP/80: a
			client < web TCP/80: b`,
	}})
}

// same reports whether two maps are the same one.
func same(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }

// Unchanged maps are the same map, above all the large ones after a label change.
func TestTablesShareWhatIsAsItWas(t *testing.T) {
	s, local := thousand(50)
	s = withBlocks(s, blocks(300, 20<<24))
	c := NewCompiler("n1")
	before, _ := c.Compile(s, local)
	check := func(what string, now *Tables, changed ...string) {
		t.Helper()
		want := map[string]bool{}
		for _, name := range changed {
			want[name] = true
		}
		got := map[string]bool{}
		a, b := reflect.ValueOf(*before), reflect.ValueOf(*now)
		for i := range a.NumField() {
			if a.Field(i).Pointer() != b.Field(i).Pointer() {
				got[a.Type().Field(i).Name] = true
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: other maps are (-want +got):\n%s", what, diff)
		}
		before = now
	}
	compile := func(s *cluster.Snapshot) *Tables {
		now, _ := c.Compile(s, local)
		return now
	}
	check("nothing", compile(s))

	changed, pod := *s, *s.Pods.Slice()[999]
	pod.Labels = cluster.NewLabels(map[string]string{"app": "new"})
	changed.Pods = withPod(s.Pods, &pod)
	check("a label that no selector matches", compile(&changed))

	teamMate := pod
	teamMate.Labels = cluster.NewLabels(map[string]string{"app": "1"})
	movedPrefixes := changed
	teamMate.Namespace, teamMate.Name = s.Pods.Slice()[0].Namespace, "zz"
	teamMate.Addresses = addrs("10.200.0.1")
	movedPrefixes.Pods = withPod(changed.Pods, &teamMate)
	sortSnapshot(&movedPrefixes)
	check("a pod like others", compile(&movedPrefixes), "Peers")

	single := movedPrefixes
	last := pod
	last.Addresses = []netip.Addr{number(20<<24 + 256)}
	single.Pods = withPod(movedPrefixes.Pods, &last)
	now := compile(&single)
	check("a pod with the address of a block", now, "Peers", "Policies")
	if !same(now.Blocks, before.Blocks) {
		t.Error("blocks are another map")
	}
}

// An ipBlock of one address of this node is in Blocks, for forwarded packets with that source: the sender is not the
// node.
func TestSinglesOfTheNode(t *testing.T) {
	own, other := addr("192.168.60.11"), addr("203.0.113.7")
	c := testCase{policies: `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 192.168.60.0/24, except: [192.168.60.11/32]}}, {ipBlock: {cidr: 203.0.113.7/32}}]}]}`}
	s := c.snapshot(t)
	compiler := NewCompiler("n1")
	tables, _ := compiler.Compile(s, localTo("n1", s))
	if _, ok := tables.Blocks[netip.PrefixFrom(own, 32)]; !ok {
		t.Errorf("blocks are %v", tables.Blocks)
	}
	if _, ok := tables.Blocks[netip.PrefixFrom(other, 32)]; !ok || len(tables.Blocks) != 3 {
		t.Errorf("blocks are %v", tables.Blocks)
	}
	sets := tables.Pods[addr("10.1.1.2")]
	if allowed, _ := tables.VerdictMasqueraded(sets, own, 6, 80); allowed {
		t.Error("an exception is allowed")
	}
	if allowed, _ := tables.VerdictMasqueraded(sets, addr("192.168.60.12"), 6, 80); !allowed {
		t.Error("an address in the block is not allowed")
	}
	again := *s
	again.Pods = cluster.ListOf(s.Pods.Slice()[1:]...) // an unrelated change
	now, _ := compiler.Compile(&again, localTo("n1", &again))
	if !same(now.Blocks, tables.Blocks) {
		t.Error("blocks are another map")
	}
	elsewhere := *s
	elsewhere.Nodes = nil
	now, _ = compiler.Compile(&elsewhere, localTo("n1", s))
	if !same(now.Blocks, tables.Blocks) {
		t.Errorf("the address is no longer the node's: blocks are %v", now.Blocks)
	}
}

// However policies are added and removed, nothing of removed ones is kept for long.
func TestNothingIsKept(t *testing.T) {
	w := newRandomCluster(1)
	c := NewCompiler("n1")
	most := 0
	for range 1500 {
		for range 4 {
			w.change()
		}
		s := w.snapshot()
		c.Compile(s, localTo("n1", s))
		most = max(most, len(c.conditions.all))
	}
	if limit := 3 * leastConditions; most > limit {
		t.Errorf("%d conditions were kept, want no more than %d", most, limit)
	}
	for range 3 {
		c.Compile(&cluster.Snapshot{}, Local{})
	}
	if n := len(c.sets.objects) + len(c.pods.objects) + len(c.addresses.objects) + len(c.portLists.objects) + len(c.subjects.rules) + len(c.used); n != 0 {
		t.Errorf("%d objects are kept of removed ones", n)
	}
}

// A range is split into as few prefixes as possible, with exactly its ports.
func TestRanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ranges := [][2]uint16{{1, 65535}, {1, 65534}, {1, 1}, {65535, 65535}, {80, 95}, {32000, 32768}}
	for range 200 {
		first := 1 + random.IntN(65535)
		ranges = append(ranges, [2]uint16{uint16(first), uint16(first + random.IntN(65536-first))})
	}
	most := 0
	for _, r := range ranges {
		list := merge([]grant{{protocol: cluster.TCP, first: r[0], last: r[1]}})
		most = max(most, len(list))
		has := map[uint16]bool{}
		for _, e := range list {
			size := 1 << (24 - e.prefix.Bits)
			if int(e.prefix.Port)%size != 0 {
				t.Fatalf("%v: %+v does not begin at a multiple of its size", r, e.prefix)
			}
			for port := int(e.prefix.Port); port < int(e.prefix.Port)+size; port++ {
				if has[uint16(port)] {
					t.Fatalf("%v: port %d occurs twice", r, port)
				}
				has[uint16(port)] = true
			}
		}
		if len(has) != int(r[1]-r[0])+1 || !has[r[0]] || !has[r[1]] {
			t.Fatalf("%v became %v", r, list)
		}
	}
	if most > 30 {
		t.Errorf("a range became %d prefixes", most)
	}
}

// For random ports that several policies allow the first policy is reported.
func TestMergeReportsTheFirst(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var grants []grant
		for range random.IntN(6) {
			g := grant{policy: cluster.Key{Name: fmt.Sprint(random.IntN(4))}, protocol: []cluster.Protocol{cluster.TCP, cluster.UDP}[random.IntN(2)]}
			switch random.IntN(5) {
			case 0:
				g.last = 0xffff
			case 1:
				g = grant{policy: g.policy, last: 0xffff}
			default:
				g.first = uint16(1 + random.IntN(20))
				g.last = g.first + uint16(random.IntN(10))
			}
			grants = append(grants, g)
		}
		tables := Tables{Pods: map[netip.Addr]Sets{}, Policies: map[Peer]Ports{{Set: 1}: 7}, Ports: map[PortPrefix]Policy{}}
		for _, e := range merge(append([]grant(nil), grants...)) {
			e.prefix.Ports = 7
			tables.Ports[e.prefix] = Policy(e.policy.Name[0])
		}
		for _, protocol := range []cluster.Protocol{1, cluster.TCP, cluster.UDP} {
			for port := range uint16(34) {
				want := Policy(0)
				for _, g := range grants {
					fits := g.protocol == 0 || g.protocol == protocol && g.first <= port && port <= g.last
					if name := Policy(g.policy.Name[0]); fits && (want == 0 || name < want) {
						want = name
					}
				}
				allowed, got := tables.Verdict(Sets{Ingress: 1}, Ingress, addr("192.0.2.1"), uint8(protocol), port)
				if allowed != (want != 0) || got != want {
					t.Fatalf("%v: protocol %d port %d: got %c, want %c", grants, protocol, port, got, want)
				}
			}
		}
	}
}

// disjoint fails if an address is in two tables.
func disjoint(t *testing.T, tables *Tables) {
	t.Helper()
	for a := range tables.Peers.All() {
		if _, both := tables.Identities[a]; both {
			t.Fatalf("%s is in Identities and in Peers", a)
		}
	}
}
