package ippool

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

func ranges(texts ...string) (all []netipx.IPRange) {
	for _, text := range texts {
		all = append(all, netipx.MustParseIPRange(text))
	}
	return all
}

func TestSpace(t *testing.T) {
	s := NewSpace(ranges("192.0.2.254-192.0.3.1", "192.0.4.9-192.0.4.9"))
	var all []string
	for i := range s.Size() {
		all = append(all, s.At(uint64(i)).String())
	}
	if diff := cmp.Diff([]string{"192.0.2.254", "192.0.2.255", "192.0.3.0", "192.0.3.1", "192.0.4.9"}, all); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]bool{"192.0.2.253": false, "192.0.2.254": true, "192.0.3.1": true, "192.0.3.2": false, "192.0.4.9": true, "192.0.4.10": false, "2001:db8::1": false} {
		if got := s.Contains(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s in the space: %v", text, got)
		}
	}
	if wide := NewSpace(ranges("2001:db8::2-2001:db8::ffff:ffff:ffff:ffff")); wide.Size() != math.MaxInt64 || wide.At(1<<32).String() != "2001:db8::1:0:2" {
		t.Errorf("a /64 has %d, %s", wide.Size(), wide.At(1<<32))
	}
	if carry := NewSpace(ranges("2001:db8::ffff:ffff:ffff:ffff-2001:db8:0:1::1")); carry.Size() != 3 || carry.At(1).String() != "2001:db8:0:1::" {
		t.Errorf("across 64 bits: %d, %s", carry.Size(), carry.At(1))
	}
}

// Every seed finds the last free address, and none finds one in an exhausted space.
func TestFree(t *testing.T) {
	s := NewSpace(ranges("192.0.2.1-192.0.2.7"))
	last := netip.MustParseAddr("192.0.2.5")
	for seed := range uint64(20) {
		if got, ok := s.Free(seed, 6, func(a netip.Addr) bool { return a != last }); !ok || got != last {
			t.Errorf("seed %d: %s, %v", seed, got, ok)
		}
		if got, ok := s.Free(seed, 7, func(netip.Addr) bool { return true }); ok {
			t.Errorf("seed %d: %s of none", seed, got)
		}
	}
}

// A pod keeps its address if a Node gets a range with it later, which a node's token can do. No pod gets another address of the range, and
// a later claim takes none from the Node's pods.
func TestRangeOfYoungerNode(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	node := func(created int64, cidr string) cluster.Node {
		return cluster.Node{Name: "n1", Created: at(created), PodCIDRs: []netip.Prefix{netip.MustParsePrefix(cidr)}}
	}
	pools := []*cluster.IPPool{made("a", 1, "192.0.2.1-192.0.2.10")}
	for _, test := range []struct {
		name  string
		nodes []cluster.Node
		since int64
		has   bool
	}{
		{"the pod is older", []cluster.Node{node(6, "192.0.2.0/29")}, 5, true},
		{"they are of one second", []cluster.Node{node(5, "192.0.2.0/29")}, 5, false},
		{"the Node is older", []cluster.Node{node(4, "192.0.2.0/29")}, 5, false},
		{"one Node is older", []cluster.Node{node(6, "192.0.2.0/29"), node(4, "192.0.2.0/24")}, 5, false},
		{"another range", []cluster.Node{node(4, "192.0.2.8/29")}, 5, true},
	} {
		set := NewSet(pools, test.nodes, nil)
		if has := set.Has(netip.MustParseAddr("192.0.2.2"), at(test.since)); has != test.has {
			t.Errorf("%s: the pod keeps the address %t, want %t", test.name, has, test.has)
		}
		if given := set.Of(netip.MustParseAddr("192.0.2.2")) != nil; given != (test.name == "another range") {
			t.Errorf("%s: the address is given %t", test.name, given)
		}
		if set.Has(netip.MustParseAddr("192.0.2.11"), time.Time{}) {
			t.Errorf("%s: an address of no pool is the pool's", test.name)
		}
	}
}

func made(name string, age int, texts ...string) *cluster.IPPool {
	p := &cluster.IPPool{Name: name, Created: time.Unix(int64(age), 0), Ranges: ranges(texts...)}
	for _, r := range p.Ranges {
		bits := 24
		if r.From().Is6() {
			bits = 64
		}
		p.Subnets = append(p.Subnets, netip.PrefixFrom(r.From(), bits).Masked())
	}
	return p
}

// Of two pools the older one has an address of both; nodes and their pod ranges come before all.
func TestOverlap(t *testing.T) {
	nodes := []cluster.Node{{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.12")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.16/30")}}}
	set := NewSet([]*cluster.IPPool{made("b", 2, "192.0.2.8-192.0.2.20"), made("a", 1, "192.0.2.1-192.0.2.10"), made("c", 2, "192.0.2.20-192.0.2.21")}, nodes, nil)
	got := map[string]string{}
	for i := range 25 {
		a := netip.MustParseAddr(fmt.Sprint("192.0.2.", i))
		if p := set.Of(a); p != nil {
			got[p.Name] += fmt.Sprint(" ", i)
			if !p.Contains(a) {
				t.Errorf("%s is of pool %s, which has it not", a, p.Name)
			}
		}
	}
	want := map[string]string{"a": " 1 2 3 4 5 6 7 8 9 10", "b": " 11 13 14 15 20", "c": " 21"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for text, has := range map[string]bool{"192.0.2.11": true, "192.0.2.12": true, "192.0.2.16": false, "192.0.2.22": false, "2001:db8::1": false} {
		if set.Has(netip.MustParseAddr(text), time.Time{}) != has {
			t.Errorf("the pools have %s: %t, want %t", text, !has, has)
		}
	}
	for name, parts := range map[string][]string{"a": nil, "b": {"IPPool a,", "pod range 192.0.2.16/30 of Node n1"}, "c": {"IPPool b,"}} {
		overlaps := set.Pool(name).Overlaps
		if len(overlaps) != len(parts) {
			t.Errorf("%s: %q", name, overlaps)
			continue
		}
		for i, part := range parts {
			if !strings.Contains(overlaps[i], part) {
				t.Errorf("%s: %q does not name %s", name, overlaps[i], part)
			}
		}
	}
}

func selector(key, value string) *cluster.Selector {
	return &cluster.Selector{Requirements: []cluster.Requirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}}}}
}

func TestChoose(t *testing.T) {
	label := func(value string) cluster.Labels { return cluster.NewLabels(map[string]string{"is": value}) }
	of := func(name string, change func(*cluster.IPPool)) *cluster.IPPool {
		p := &cluster.IPPool{Name: name}
		change(p)
		return p
	}
	set := NewSet([]*cluster.IPPool{
		of("any", func(*cluster.IPPool) {}),
		of("bank", func(p *cluster.IPPool) { p.Namespaces = selector("is", "bank") }),
		of("db", func(p *cluster.IPPool) { p.Pods, p.Nodes = selector("is", "db"), selector("is", "rack-1") }),
		of("fallback", func(p *cluster.IPPool) { p.Default, p.Nodes = true, selector("is", "rack-2") }),
		of("off", func(p *cluster.IPPool) { p.Disabled, p.Default = true, true }),
		of("typo", func(p *cluster.IPPool) { p.Invalid, p.Pods = "spec.subnets: missing", selector("is", "typo") }),
	}, nil, nil)
	for _, c := range []struct {
		name string
		pod  Pod
		want string // names, or a part of the error
	}{
		{"no pool", Pod{}, ""},
		{"the default on its nodes", Pod{NodeLabels: label("rack-2")}, "fallback"},
		{"by the namespace's labels", Pod{NamespaceLabels: label("bank"), NodeLabels: label("rack-2")}, "bank"},
		{"by labels of pod and node", Pod{Labels: label("db"), NodeLabels: label("rack-1")}, "db"},
		{"not on another node", Pod{Labels: label("db"), NodeLabels: label("rack-3")}, ""},
		{"by annotation", Pod{IPPools: "any"}, "any"},
		{"in the order of the annotation", Pod{IPPools: "bank, any", NamespaceLabels: label("bank")}, "bank any"},
		{"the usable ones of an annotation", Pod{IPPools: "nowhere,off,any"}, "any"},
		{"the pod before its namespace", Pod{IPPools: "any", NamespaceIPPools: "none"}, "any"},
		{"the network before the pod", Pod{Network: "any", IPPools: "bank"}, "any"},
		{"the network says none", Pod{Network: "none", IPPools: "any"}, ""},
		{"the network names the pool of another tenant", Pod{Network: "bank", IPPools: "any"}, `error: field "ipPool" of the network configuration: the selectors of IPPool bank`},
		{"by the namespace's annotation", Pod{NamespaceIPPools: "any", NamespaceLabels: label("bank")}, "any"},
		{"none", Pod{IPPools: "none", NamespaceLabels: label("bank")}, ""},
		{"the pool of another tenant", Pod{IPPools: "bank"}, "error: annotation networking.beeline.dev/ippool of the pod: the selectors of IPPool bank"},
		{"a missing pool", Pod{NamespaceIPPools: "nowhere"}, `error: annotation networking.beeline.dev/ippool of its namespace: there is no IPPool "nowhere"`},
		{"a disabled pool", Pod{IPPools: "off"}, "error: annotation networking.beeline.dev/ippool of the pod: IPPool off is disabled"},
		{"an invalid pool that selects the pod", Pod{Labels: label("typo"), NodeLabels: label("rack-2")}, "error: IPPool typo is invalid: spec.subnets: missing"},
		{"a name that fills the log", Pod{IPPools: strings.Repeat("x", 200_000)}, `error: annotation networking.beeline.dev/ippool of the pod: there is no IPPool "xxxxxxxxxxxxxxxxxxxx"… (200000 characters)`},
		{"too many names", Pod{IPPools: strings.Repeat("any,", 8) + "any"}, "error: annotation networking.beeline.dev/ippool of the pod: names 9 pools, at most 8"},
	} {
		pools, err := set.Choose(c.pod)
		var got []string
		for _, p := range pools {
			got = append(got, p.Name)
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = "error: " + err.Error()
		}
		if strings.HasPrefix(c.want, "error") && strings.HasPrefix(text, c.want) {
			continue
		}
		if text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// Whatever some namespaces take, the next one finds as many free as the largest has.
func TestAdmits(t *testing.T) {
	shared := NewSet([]*cluster.IPPool{made("a", 1, "192.0.2.1-192.0.2.90")}, nil, []*cluster.Namespace{{Name: "x"}, {Name: "y"}}).Pools[0]
	take := func(p *Pool, use Use, namespace string) (got int64, last error) {
		for {
			if last = p.Admits(namespace, IPv4, use); last != nil {
				return use.Namespaces[namespace], last
			}
			use.Taken++
			use.Namespaces[namespace]++
		}
	}
	use := Use{Namespaces: map[string]int64{}}
	if got, _ := take(shared, use, "x"); got != 45 {
		t.Errorf("the first namespace gets %d of 90", got)
	}
	use.Taken = 45
	if got, err := take(shared, use, "y"); got != 23 || !strings.Contains(err.Error(), "set spec.namespaceMax") {
		t.Errorf("the second one gets %d of 45: %v", got, err)
	}
	taken := NewSet([]*cluster.IPPool{made("a", 1, "10.1.0.1-10.1.0.9")}, []cluster.Node{{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}}, nil).Pools[0]
	if err := taken.Admits("x", IPv4, Use{}); err == nil || !strings.Contains(err.Error(), "no IPv4 address for pods; the pod range 10.1.0.0/16 of Node n1") {
		t.Errorf("a pool without an address: %v", err)
	}
	only := *shared.IPPool
	only.Namespaces = selector("kubernetes.io/metadata.name", "x")
	own := NewSet([]*cluster.IPPool{&only}, nil, []*cluster.Namespace{
		{Name: "x", Labels: cluster.NewLabels(map[string]string{"kubernetes.io/metadata.name": "x"})}, {Name: "y"},
	}).Pools[0]
	if got, err := take(own, Use{Namespaces: map[string]int64{}}, "x"); got != 90 || !strings.Contains(err.Error(), "all 90 are in use") {
		t.Errorf("the only namespace of a pool gets %d of 90: %v", got, err)
	}
	limited := *shared
	with := *shared.IPPool
	with.NamespaceMax = 60
	limited.IPPool = &with
	if got, err := take(&limited, Use{Namespaces: map[string]int64{}}, "x"); got != 60 || !strings.Contains(err.Error(), "spec.namespaceMax allows") {
		t.Errorf("with spec.namespaceMax 60: %d, %v", got, err)
	}
}
