package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// here adds a pod of this node with the label pod, and gives a policy that selects it alone.
func (t *tenants) here(namespace, name string, policy *cluster.NetworkPolicy) *cluster.NetworkPolicy {
	pod := &cluster.Pod{
		Namespace: namespace, Name: name, Node: "n1", Addresses: addrs(fmt.Sprintf("10.1.2.%d", len(t.local.Pods))),
		Labels: cluster.NewLabels(map[string]string{"pod": name}),
	}
	t.snapshot.Pods = withPod(t.snapshot.Pods, pod)
	sortSnapshot(&t.snapshot)
	t.local.Pods = append(slices.Clone(t.local.Pods), LocalPod{Pod: pod.Key(), Addresses: pod.Addresses})
	policy.Pods = in("pod", name)
	return policy
}

// web adds 2^bits pods of a namespace that differ only in the labels bit0 and so on.
func (t *tenants) web(namespace string, bits int) {
	t.peers(namespace, 1<<bits, func(n int) map[string]string {
		labels := map[string]string{"app": "web"}
		for b := range bits {
			labels[fmt.Sprint("bit", b)] = fmt.Sprint(n >> b & 1)
		}
		return labels
	})
	sortSnapshot(&t.snapshot)
}

// closed gives the namespaces with local pods that are isolated.
func (t *tenants) closed(tables *Tables) string {
	var names []string
	for _, pod := range t.local.Pods {
		if sets := tables.Pods[pod.Addresses[0]]; sets.Ingress == DenyAll || sets.Egress == DenyAll {
			names = append(names, pod.Pod.String())
		}
	}
	return strings.Join(names, " ")
}

// bitRules are rules for the pods with one of some bits each, for all ports.
func bitRules(bits int) (rules []cluster.PolicyRule) {
	for b := range bits {
		rules = append(rules, cluster.PolicyRule{Peers: []cluster.PolicyPeer{selecting(fmt.Sprint("bit", b), "1")}})
	}
	return rules
}

// A rule that adds nothing to one for all peers splits no identities.
func TestCoveredRulesDistinguishNothing(t *testing.T) {
	const bits = 5
	ports := func(p cluster.Protocol, first, last uint16) []cluster.PolicyPort {
		return []cluster.PolicyPort{{Protocol: p, First: first, Last: last}}
	}
	named := []cluster.PolicyPort{{Protocol: cluster.TCP, Name: "http"}}
	bit := func(ports []cluster.PolicyPort) cluster.PolicyRule {
		return cluster.PolicyRule{Peers: bitRules(1)[0].Peers, Ports: ports}
	}
	for _, c := range []struct {
		name  string
		rules []cluster.PolicyRule
		apart bool
	}{
		{"all ports for all peers", append(bitRules(bits), cluster.PolicyRule{}), false},
		{"a port of a range", []cluster.PolicyRule{{Ports: ports(cluster.TCP, 1, 99)}, bit(ports(cluster.TCP, 99, 99))}, false},
		{"one more port", []cluster.PolicyRule{{Ports: ports(cluster.TCP, 1, 99)}, bit(ports(cluster.TCP, 99, 100))}, true},
		{"two ranges", []cluster.PolicyRule{{Ports: ports(cluster.TCP, 1, 99)}, {Ports: ports(cluster.TCP, 100, 200)}, bit(ports(cluster.TCP, 99, 100))}, false},
		{"a gap between two", []cluster.PolicyRule{{Ports: ports(cluster.TCP, 1, 99)}, {Ports: ports(cluster.TCP, 101, 200)}, bit(ports(cluster.TCP, 99, 101))}, true},
		{"another protocol", []cluster.PolicyRule{{Ports: ports(cluster.UDP, 1, 99)}, bit(ports(cluster.TCP, 99, 99))}, true},
		{"all protocols, not only TCP", []cluster.PolicyRule{{Ports: ports(cluster.TCP, 0, 0)}, bit(nil)}, true},
		{"a name within all ports", []cluster.PolicyRule{{Ports: ports(cluster.TCP, 0, 0)}, bit(named)}, false},
		{"a name within a range", []cluster.PolicyRule{{Ports: ports(cluster.TCP, 1, 8000)}, bit(named)}, true},
		{"a name for all peers", []cluster.PolicyRule{{Ports: ports(cluster.TCP, 0, 0)}, {Ports: named}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTenants("evil")
			w.web("good", bits)
			for n, pod := range w.snapshot.Pods.Slice() {
				pod.Ports = []cluster.ContainerPort{{Name: "http", Protocol: cluster.TCP, Number: uint16(8080 + n)}}
			}
			policy := &cluster.NetworkPolicy{Namespace: "evil", Name: "p", IsolatesEgress: true, Egress: c.rules}
			tables, _ := w.compile(NewCompiler("n1"), policy)
			identities := map[Identity]bool{}
			for _, identity := range tables.Peers.All() {
				identities[identity] = true
			}
			if apart := len(identities) > 1; apart != c.apart {
				t.Errorf("pods are split: %t, want %t: %v", apart, c.apart, tables.Policies)
			}
		})
	}

	// Of two policies, the one that is reported does not change with the rules of the other.
	w := newTenants("evil")
	w.web("good", bits)
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		anyPeer := &cluster.NetworkPolicy{Namespace: "evil", Name: names[0], IsolatesIngress: true, Ingress: []cluster.PolicyRule{{}}}
		some := &cluster.NetworkPolicy{Namespace: "evil", Name: names[1], IsolatesIngress: true, Ingress: bitRules(1)}
		policies := []*cluster.NetworkPolicy{anyPeer, some}
		if names[0] > names[1] {
			policies = []*cluster.NetworkPolicy{some, anyPeer}
		}
		tables, _ := w.compile(NewCompiler("n1"), policies...)
		_, by := tables.Verdict(w.sets(tables, "evil"), Ingress, addrs("10.2.0.1")[0], 6, 80)
		if got := tables.Names[by].Name; got != "a" {
			t.Errorf("%s is for all peers, and %s is reported for what both allow", names[0], got)
		}
	}
}

// A namespace that splits no identity of others is not rejected, however much it needs itself, and however little the
// splitting ones need.
func TestNondistinguishingPolicyStays(t *testing.T) {
	const bits = 5
	web := func(w *tenants, pods int) (policies []*cluster.NetworkPolicy) {
		for n := range pods {
			name := fmt.Sprint("web", n)
			policies = append(policies, w.here("good", name, admitting("good", name, selecting("app", "web"))))
		}
		return policies
	}
	allPeers := func(rules []cluster.PolicyRule) []cluster.PolicyRule { // one demand, whatever the peer
		return append(rules, cluster.PolicyRule{Peers: []cluster.PolicyPeer{{Namespaces: &cluster.Selector{}}}})
	}
	for _, c := range []struct {
		name   string
		spaces []string
		evil   func(*tenants) []*cluster.NetworkPolicy
		closed string
		most   int // problems
	}{
		{"rules that change nothing", []string{"evil"}, func(*tenants) []*cluster.NetworkPolicy {
			return []*cluster.NetworkPolicy{{Namespace: "evil", Name: "p", IsolatesIngress: true, Ingress: append(bitRules(bits), cluster.PolicyRule{})}}
		}, "", 0},
		{"rules that change nothing for pods", []string{"evil"}, func(*tenants) []*cluster.NetworkPolicy {
			return []*cluster.NetworkPolicy{{Namespace: "evil", Name: "p", IsolatesIngress: true, Ingress: allPeers(bitRules(bits))}}
		}, "evil/pod", 1},
		{"a policy for each bit, in a namespace of its own", []string{"evil0", "evil1", "evil2", "evil3", "evil4"}, func(*tenants) (policies []*cluster.NetworkPolicy) {
			for b := range bits {
				policies = append(policies, &cluster.NetworkPolicy{Namespace: fmt.Sprint("evil", b), Name: "p", IsolatesIngress: true, Ingress: bitRules(bits)[b : b+1]})
			}
			return policies
		}, "evil0/pod evil1/pod evil2/pod evil3/pod evil4/pod", bits},
		{"two namespaces with the same", []string{"evil0", "evil1"}, func(*tenants) (policies []*cluster.NetworkPolicy) {
			for n := range 2 {
				policies = append(policies, &cluster.NetworkPolicy{Namespace: fmt.Sprint("evil", n), Name: "p", IsolatesIngress: true, Ingress: allPeers(bitRules(bits))})
			}
			return policies
		}, "evil0/pod evil1/pod", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTenants(c.spaces...)
			w.web("good", bits)
			policies := append(c.evil(w), web(w, 30)...)
			compiler := NewCompiler("n1")
			compiler.bound(Sizes{Policies: 60})
			tables, problems := w.compile(compiler, policies...)
			if got := w.closed(tables); got != c.closed || len(tables.Policies) > 60 {
				t.Errorf("isolated are %q of %d entries, want %q: %v", got, len(tables.Policies), c.closed, problems)
			}
			if len(problems) != c.most {
				t.Errorf("problems are %v", problems)
			}
		})
	}
}

// Of two namespaces that split identities, the one that splits more is rejected, and no more of its policies than
// needed.
func TestMostDistinguishingIsRejectedFirst(t *testing.T) {
	const bits = 5
	w := newTenants("some")
	w.web("good", bits)
	policies := []*cluster.NetworkPolicy{{Namespace: "some", Name: "p", IsolatesIngress: true, Ingress: bitRules(1)}}
	for b := range bits {
		name := fmt.Sprint("pod", b)
		policies = append(policies, w.here("much", name, &cluster.NetworkPolicy{Namespace: "much", Name: name, IsolatesIngress: true, Ingress: bitRules(bits)[b : b+1]}))
	}
	for n := range 8 {
		name := fmt.Sprint("web", n)
		policies = append(policies, w.here("web", name, admitting("web", name, selecting("app", "web"))))
	}
	tables, problems := w.fit(60, policies)
	if got := w.closed(tables); got != "much/pod2 much/pod3 much/pod4" || len(problems) != 3 {
		t.Errorf("isolated are %q: %v", got, problems)
	}
	want := `NetworkPolicy much/pod2: its rules exceed the capacity: namespace "much" needs `
	if len(problems) == 0 || !strings.HasPrefix(problems[0].Text, want) {
		t.Errorf("problems are %v, want %s", problems, want)
	}
}

// The entries that a namespace adds to those of others count for it.
func TestEntriesOfOthersCount(t *testing.T) {
	const bits = 5
	w := newTenants("much", "some")
	w.web("good", bits+1)
	policies := []*cluster.NetworkPolicy{
		{Namespace: "much", Name: "p", IsolatesIngress: true, Ingress: bitRules(bits)},
		{Namespace: "some", Name: "a", IsolatesIngress: true, Ingress: bitRules(bits + 1)[bits:]},
	}
	w.here("some", "a", policies[1])
	for n := range 30 {
		name := fmt.Sprintf("web%02d", n)
		policies = append(policies, w.here("some", name, admitting("some", name, selecting("app", "web"))))
	}
	c := NewCompiler("n1")
	c.bound(Sizes{Policies: 130})
	tables, problems := w.compile(c, policies...)
	if got := w.closed(tables); got != "much/pod" || len(problems) != 1 {
		t.Errorf("isolated are %q: %v", got, problems)
	}
}

// The own demand of a namespace does not count: one that splits little of others' rules is not rejected for it, nor
// before one that splits much.
func TestOwnEntriesDoNotCount(t *testing.T) {
	const bits, sets = 5, 130
	w := newTenants("much")
	w.web("good", bits+1)
	policies := []*cluster.NetworkPolicy{
		{Namespace: "much", Name: "p", IsolatesIngress: true, Ingress: bitRules(bits)},
		w.here("own", "p", &cluster.NetworkPolicy{Namespace: "own", Name: "p", IsolatesIngress: true, Ingress: bitRules(bits + 1)[bits:]}),
	}
	for n := range sets {
		name := fmt.Sprintf("own%03d", n)
		policies = append(policies, w.here("own", name, admitting("own", name, selecting("pod", "own000"))))
	}
	for n := range 4 {
		name := fmt.Sprint("web", n)
		policies = append(policies, w.here("good", name, admitting("good", name, selecting("app", "web"))))
	}
	tables, problems := w.fit(200, policies)
	if got := w.closed(tables); got != "much/pod" || len(problems) != 1 {
		t.Errorf("isolated are %.60q: %d entries, %d problems", got, len(tables.Policies), len(problems))
	}
}

// The largest splitter is rejected before many small ones that split together, and accepted again when rejecting
// those is enough.
func TestFirstRejectedIsAcceptedAgain(t *testing.T) {
	const bits, kinds = 5, 4
	w := newTenants("shop", "evil0", "evil1", "evil2", "evil3", "evil4")
	w.peers("evil0", kinds<<bits, func(n int) map[string]string {
		labels := map[string]string{"app": "web", "kind": fmt.Sprint(n >> bits)}
		for b := range bits {
			labels[fmt.Sprint("bit", b)] = fmt.Sprint(n >> b & 1)
		}
		return labels
	})
	sortSnapshot(&w.snapshot)
	var ofKinds []cluster.PolicyRule
	for n := 1; n < kinds; n++ {
		ofKinds = append(ofKinds, cluster.PolicyRule{
			Peers: []cluster.PolicyPeer{selecting("kind", fmt.Sprint(n))}, Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, First: uint16(n), Last: uint16(n)}},
		})
	}
	policies := []*cluster.NetworkPolicy{{Namespace: "shop", Name: "p", IsolatesIngress: true, Ingress: ofKinds}}
	for b := range bits {
		policies = append(policies, &cluster.NetworkPolicy{Namespace: fmt.Sprint("evil", b), Name: "p", IsolatesIngress: true, Ingress: bitRules(bits)[b : b+1]})
	}
	for n := range 10 {
		name := fmt.Sprint("web", n)
		policies = append(policies, w.here("good", name, admitting("good", name, selecting("app", "web"))))
	}
	tables, problems := w.fit(100, policies)
	if got, want := w.closed(tables), "evil0/pod evil1/pod evil2/pod evil3/pod evil4/pod"; got != want || len(problems) != bits || len(tables.Policies) > 100 {
		t.Errorf("isolated are %q with %d entries, want %q: %v", got, len(tables.Policies), want, problems)
	}
}

// Port names that others request split identities of a namespace: that is not its cost.
func TestNamesOfOthersAreNotRequested(t *testing.T) {
	w := newTenants("evil", "good")
	w.peers("good", 40, func(int) map[string]string { return map[string]string{"app": "web"} })
	for n, pod := range w.snapshot.Pods.Slice() {
		pod.Ports = []cluster.ContainerPort{{Name: "http", Protocol: cluster.TCP, Number: uint16(1000 + n)}}
	}
	good := &cluster.NetworkPolicy{Namespace: "good", Name: "p", IsolatesEgress: true, Egress: []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{selecting("app", "web")}}}}
	evil := &cluster.NetworkPolicy{Namespace: "evil", Name: "p", IsolatesEgress: true, Egress: []cluster.PolicyRule{{Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, Name: "http"}}}}}
	c := NewCompiler("n1")
	w.compile(c, evil, good)
	if d := c.demands(); d.spaces["good"].policies != 1 || d.spaces["evil"].policies != 42 {
		t.Errorf("namespaces need %+v and %+v", d.spaces["good"], d.spaces["evil"])
	}
}

// allowing is a policy that allows all peers at a number of ports that are not adjacent.
func allowing(namespace, name string, ports int) *cluster.NetworkPolicy {
	rule := cluster.PolicyRule{}
	for n := range ports {
		rule.Ports = append(rule.Ports, cluster.PolicyPort{Protocol: cluster.TCP, First: uint16(2 + 2*n), Last: uint16(2 + 2*n)})
	}
	return &cluster.NetworkPolicy{Namespace: namespace, Name: name, IsolatesIngress: true, Ingress: []cluster.PolicyRule{rule}}
}

// A list of ports that several sets of a namespace share is in the table once.
func TestListsOfPortsCountOnce(t *testing.T) {
	w := newTenants("evil")
	policies := []*cluster.NetworkPolicy{allowing("evil", "p", 81), allowing("good", "all", 10)}
	for n := range 10 {
		name := fmt.Sprint("pod", n)
		policies = append(policies, w.here("good", name, admitting("good", name, selecting("app", "none"))))
	}
	c := NewCompiler("n1")
	c.bound(Sizes{Ports: 90})
	tables, problems := w.compile(c, policies...)
	if got := w.closed(tables); got != "evil/pod" || len(tables.Ports) != 10 {
		t.Errorf("isolated are %q, and %d ports: %v", got, len(tables.Ports), problems)
	}
}

// Nor does it count twice for the policies of a namespace that does not fit.
func TestListsOfPortsCountOnceForPolicies(t *testing.T) {
	w := newTenants("evil")
	policies := []*cluster.NetworkPolicy{allowing("evil", "p", 25)}
	for _, name := range []string{"a", "b"} {
		policies = append(policies, w.here("good", name, admitting("good", name, selecting("app", "none"))))
	}
	policies = append(policies, w.here("good", "c", allowing("good", "c", 15)), allowing("good", "z", 20))
	policies[4].Pods = in("pod", "a", "b")
	c := NewCompiler("n1")
	c.bound(Sizes{Ports: 50}) // 25 for each of the two
	if tables, problems := w.compile(c, policies...); w.closed(tables) != "good/c" || len(problems) != 1 {
		t.Errorf("isolated are %q: %v", w.closed(tables), problems)
	}
}

// Namespaces whose policies match the same, or labels of other names that the same pods have, share what it costs
// others, and are rejected before one that needs less.
func TestSameSelectorsAreCharged(t *testing.T) {
	for _, second := range []string{"bit", "twin"} {
		t.Run(second, func(t *testing.T) { testSameSelectors(t, second) })
	}
}

func testSameSelectors(t *testing.T, second string) {
	const bits, rare, good, capacity = 5, 8, 10, 125
	namespaces := []string{"evil-a", "evil-b", "other"}
	var policies []*cluster.NetworkPolicy
	for bit := range bits {
		for n, label := range []string{"bit", second} {
			policies = append(policies, admitting(namespaces[n], fmt.Sprint("p", bit), selecting(fmt.Sprint(label, bit), "1")))
		}
	}
	policies = append(policies, admitting("other", "p", selecting("rare", "1")))
	for n := range good {
		namespaces = append(namespaces, fmt.Sprint("good", n))
		policies = append(policies, admitting(fmt.Sprint("good", n), "p", selecting("app", "web")))
	}
	w := newTenants(namespaces...)
	w.peers("x", 1<<bits+rare, func(n int) map[string]string {
		labels := map[string]string{"app": "web"}
		for bit := range bits {
			labels[fmt.Sprint("bit", bit)] = fmt.Sprint(n >> bit & 1)
			labels[fmt.Sprint(second, bit)] = fmt.Sprint(n >> bit & 1)
		}
		labels["rare"] = fmt.Sprint(n >> bits)
		return labels
	})
	c := NewCompiler("n1")
	c.bound(Sizes{Policies: capacity})
	tables, problems := w.compile(c, policies...)
	if got, want := w.closed(tables), "evil-a/pod evil-b/pod"; got != want || len(tables.Policies) > capacity {
		t.Errorf("isolated are %q with %d entries, want %q: %v", got, len(tables.Policies), want, problems)
	}

	probe := NewCompiler("n1")
	snapshot := w.snapshot
	snapshot.NetworkPolicies = policies
	probe.compile(&snapshot, w.local)
	s := probe.splits()
	costs := map[string]int{}
	for n, cost := range s.splitCosts() {
		costs[s.names[n]] = cost
	}
	// Each good one treats all groups alike: it has an entry for each group, of which the evil ones alone would make
	// 31 more, twice, and the other one 1 more. For the evil ones, 7 of the rare groups are like the rest; for the
	// other one all 8 are alike.
	const more, groups = good * (1<<bits + rare - 1), 1<<bits - 1
	evil, other := (2*more*groups+(2*groups+1)*(rare-1))/(2*(2*groups+1))+1, more/(2*groups+1)+2*(rare-1)+1
	if costs["evil-a"] != evil || costs["evil-b"] != evil || costs["other"] != other || costs["good0"] != 0 {
		t.Errorf("namespaces are charged %v, want %d each and %d", costs, evil, other)
	}
}
