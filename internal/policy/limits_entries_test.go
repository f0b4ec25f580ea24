package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// tenants are namespaces with a local pod each, and remote pods that their policies may match.
type tenants struct {
	snapshot cluster.Snapshot
	local    Local
}

func newTenants(namespaces ...string) *tenants {
	t := &tenants{local: Local{Addresses: addrs("192.168.60.11")}}
	for i, namespace := range namespaces {
		t.snapshot.Namespaces = append(t.snapshot.Namespaces, &cluster.Namespace{Name: namespace, Labels: cluster.NewLabels(map[string]string{"kubernetes.io/metadata.name": namespace})})
		pod := &cluster.Pod{Namespace: namespace, Name: "pod", Node: "n1", Addresses: addrs(fmt.Sprintf("10.1.1.%d", i+2)), Labels: cluster.NewLabels(nil)}
		t.snapshot.Pods = withPod(t.snapshot.Pods, pod)
		t.local.Pods = append(t.local.Pods, LocalPod{Pod: pod.Key(), Addresses: pod.Addresses})
	}
	return t
}

// peers adds pods of a namespace on another node, the nth with these labels.
func (t *tenants) peers(namespace string, count int, labels func(n int) map[string]string) {
	for n := range count {
		t.snapshot.Pods = withPod(t.snapshot.Pods, &cluster.Pod{
			Namespace: namespace, Name: fmt.Sprintf("x%04d", n), Node: "n2", Labels: cluster.NewLabels(labels(n)),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)})},
		})
	}
}

func (t *tenants) compile(c *Compiler, policies ...*cluster.NetworkPolicy) (*Tables, []Problem) {
	with := t.snapshot
	with.NetworkPolicies = policies
	return c.Compile(&with, t.local)
}

// fit compiles policies, sorted as in snapshots, into a table of a capacity.
func (t *tenants) fit(entries int, policies []*cluster.NetworkPolicy) (*Tables, []Problem) {
	snapshot := t.snapshot
	snapshot.NetworkPolicies = policies
	sortSnapshot(&snapshot)
	c := NewCompiler("n1")
	c.bound(Sizes{Policies: entries})
	return t.compile(c, snapshot.NetworkPolicies...)
}

// sets are those of the pod of a namespace.
func (t *tenants) sets(tables *Tables, namespace string) Sets {
	for _, pod := range t.local.Pods {
		if pod.Pod.Namespace == namespace {
			return tables.Pods[pod.Addresses[0]]
		}
	}
	panic("no namespace " + namespace)
}

// allowed is what a set allows the pod at an address.
func allowed(tables *Tables, set Set, addr string) Ports {
	peer, _ := tables.Peers.Get(netip.MustParseAddr(addr))
	return tables.Policies[Peer{set, peer}]
}

// selecting is a selector of pods of any namespace with a label.
func selecting(key, value string) cluster.PolicyPeer {
	return cluster.PolicyPeer{Namespaces: &cluster.Selector{}, Pods: &cluster.Selector{Requirements: []cluster.Requirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}}}}}
}

// admitting is a policy with a rule for each of some peers, each with its own port.
func admitting(namespace, name string, peers ...cluster.PolicyPeer) *cluster.NetworkPolicy {
	p := &cluster.NetworkPolicy{Namespace: namespace, Name: name, IsolatesIngress: true}
	for n, peer := range peers {
		p.Ingress = append(p.Ingress, cluster.PolicyRule{Peers: []cluster.PolicyPeer{peer}, Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, First: uint16(1 + n), Last: uint16(1 + n)}}})
	}
	return p
}

// The peers of one namespace do not use the capacity of others in the table of policies: the pods that its policies
// select are isolated, and no others.
func TestPeersOfOneNamespaceAreBounded(t *testing.T) {
	w := newTenants("evil", "good")
	w.peers("good", 200, func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n)} })
	naming := func(namespace, name string, from, count int) *cluster.NetworkPolicy {
		var peers []cluster.PolicyPeer
		for n := range count {
			peers = append(peers, selecting("n", fmt.Sprint(from+n)))
		}
		return admitting(namespace, name, peers...)
	}
	good := naming("good", "list", 0, 20)
	small, large := naming("evil", "a", 0, 30), naming("evil", "b", 100, 60)
	c := NewCompiler("n1")
	c.bound(Sizes{Policies: 100})
	for _, step := range []struct {
		evil    []*cluster.NetworkPolicy
		problem string
	}{
		{[]*cluster.NetworkPolicy{naming("evil", "list", 0, 80)}, ""},
		{[]*cluster.NetworkPolicy{naming("evil", "list", 0, 81)},
			`NetworkPolicy evil/list: its rules exceed the capacity: namespace "evil" needs 81 entries of the table policies, its share is 80 (--policies-max); isolated: pod evil/pod`},
		{[]*cluster.NetworkPolicy{naming("evil", "list", 0, 80)}, ""},
		{[]*cluster.NetworkPolicy{naming("evil", "a", 0, 100), naming("evil", "b", 100, 100)},
			`NetworkPolicy evil/a: its rules exceed the capacity: namespace "evil" needs 200 entries of the table policies, its share is 80 (--policies-max); isolated: pod evil/pod`},
		{[]*cluster.NetworkPolicy{small, large},
			`NetworkPolicy evil/a: its rules exceed the capacity: namespace "evil" needs 90 entries of the table policies, its share is 80 (--policies-max); isolated: pod evil/pod`},
		{[]*cluster.NetworkPolicy{small}, ""}, // the same object as before
	} {
		tables, problems := w.compile(c, append(step.evil, good)...)
		if len(tables.Policies) > 100 {
			t.Errorf("%d entries in a table of 100", len(tables.Policies))
		}
		if sets := w.sets(tables, "good"); sets.Ingress == DenyAll || sets.Ingress == NotIsolated || allowed(tables, sets.Ingress, "10.2.0.7") == 0 {
			t.Errorf("the pod of the other namespace has %+v of %v", sets, tables.Policies)
		}
		if closed := w.sets(tables, "evil").Ingress == DenyAll; closed != (step.problem != "") {
			t.Errorf("the pod whose policies need %q is isolated: %v", step.problem, closed)
		}
		var texts []string
		for _, p := range problems {
			texts = append(texts, p.Text)
		}
		if got := strings.Join(texts, "\n"); got != step.problem {
			t.Errorf("problems are %q, want %q", got, step.problem)
		}
		// The same snapshot once more changes nothing, and another compiler has the same result.
		again, _ := w.compile(c, append(step.evil, good)...)
		anew := NewCompiler("n1")
		anew.bound(Sizes{Policies: 100})
		other, _ := w.compile(anew, append(step.evil, good)...)
		if a, b, o := fmt.Sprint(tables.Pods), fmt.Sprint(again.Pods), fmt.Sprint(other.Pods); a != b || a != o {
			t.Errorf("pods have %s, then %s, and with another compiler %s", a, b, o)
		}
	}
}

// The ports of one namespace do not use the capacity of others, nor memory before their number is known.
func TestPortsOfOneNamespaceAreBounded(t *testing.T) {
	w := newTenants("evil", "good")
	w.peers("good", 1000, func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n)} })
	good := admitting("good", "list", selecting("n", "1"), selecting("n", "2"))
	evil := &cluster.NetworkPolicy{Namespace: "evil", Name: "ports", IsolatesIngress: true}
	for n := range 1000 {
		rule := cluster.PolicyRule{Peers: []cluster.PolicyPeer{selecting("n", fmt.Sprint(n))}}
		for i := range 50 {
			first := uint16(1 + 100*i + n%50)
			rule.Ports = append(rule.Ports, cluster.PolicyPort{Protocol: cluster.TCP, First: first, Last: first + 45})
		}
		evil.Ingress = append(evil.Ingress, rule)
	}
	c := NewCompiler("n1")
	c.bound(Sizes{Ports: 1000})
	for range 3 {
		tables, problems := w.compile(c, evil, good)
		if len(tables.Ports) > 1000 {
			t.Errorf("%d entries in a table of 1000", len(tables.Ports))
		}
		if sets := w.sets(tables, "good"); sets.Ingress == DenyAll || allowed(tables, sets.Ingress, "10.2.0.2") == 0 {
			t.Errorf("the pod of the other namespace has %+v of %v", sets, tables.Policies)
		}
		if w.sets(tables, "evil").Ingress != DenyAll || len(problems) != 1 || !strings.Contains(problems[0].Text, "NetworkPolicy evil/ports: its rules exceed the capacity") {
			t.Errorf("pods have %v, problems are %v", tables.Pods, problems)
		}
		held := 0
		for _, list := range c.portLists.objects {
			held += len(list.value)
		}
		if held > 3000 {
			t.Errorf("the compiler holds %d entries for a table of 1000", held)
		}
	}
	if tables, problems := w.compile(c, admitting("evil", "ports", selecting("n", "3")), good); len(problems) != 0 || w.sets(tables, "evil").Ingress == DenyAll {
		t.Errorf("what fits again is rejected: %v", problems)
	}
}

// Selectors of one namespace that split identities which another treats alike increase the other's entries. Their own
// policies are rejected.
func TestDistinguishingPolicyIsRejectedFirst(t *testing.T) {
	w := newTenants("evil", "good")
	const bits = 6
	w.peers("good", 1<<bits, func(n int) map[string]string {
		labels := map[string]string{"app": "web"}
		for b := range bits {
			labels[fmt.Sprint("bit", b)] = fmt.Sprint(n >> b & 1)
		}
		return labels
	})
	good := admitting("good", "web", selecting("app", "web"))
	var evil []*cluster.NetworkPolicy
	for b := range bits {
		evil = append(evil, admitting("evil", fmt.Sprint("bit", b), selecting(fmt.Sprint("bit", b), "1")))
	}
	c := NewCompiler("n1")
	c.bound(Sizes{Policies: 1000})
	if tables, _ := w.compile(c, append(evil, good)...); len(tables.Policies) != 2<<bits-1 {
		t.Fatalf("%d entries, want %d: the case is wrong", len(tables.Policies), 2<<bits-1)
	}
	c = NewCompiler("n1")
	c.bound(Sizes{Policies: 60})
	tables, problems := w.compile(c, append(evil, good)...)
	if sets := w.sets(tables, "good"); sets.Ingress == DenyAll || len(tables.Policies) > 60 {
		t.Errorf("the pod of the other namespace has %+v, and there are %d entries", sets, len(tables.Policies))
	}
	if w.sets(tables, "evil").Ingress != DenyAll || len(problems) == 0 || len(problems) > bits {
		t.Errorf("problems are %v", problems)
	}
}

// Whatever policies need, the tables fit, and a namespace that needs no more than an equal share gets it.
func TestEverybodyHasAnEqualPart(t *testing.T) {
	const spaces, policies, ports = 4, 80, 60
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := newTenants("a", "b", "c", "d")
		w.peers("a", 30, func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n)} })
		c := NewCompiler("n1")
		c.bound(Sizes{Policies: policies, Ports: ports})
		for range 4 {
			var all []*cluster.NetworkPolicy
			needs := map[string]int{}
			for _, namespace := range []string{"a", "b", "c", "d"}[:1+random.IntN(spaces)] {
				for i := range 1 + random.IntN(3) {
					var peers []cluster.PolicyPeer
					for range random.IntN(1 + random.IntN(40)) {
						peers = append(peers, selecting("n", fmt.Sprint(random.IntN(30))))
					}
					needs[namespace] += len(peers)
					all = append(all, admitting(namespace, fmt.Sprint("p", i), peers...))
				}
			}
			tables, problems := w.compile(c, all...)
			if len(tables.Policies) > policies || len(tables.Ports) > ports {
				t.Fatalf("seed %d: %d and %d entries", seed, len(tables.Policies), len(tables.Ports))
			}
			closed := 0
			for namespace, n := range needs {
				if w.sets(tables, namespace).Ingress != DenyAll {
					continue
				}
				closed++
				if n <= min(policies, ports)/len(needs) {
					t.Errorf("seed %d: namespace %s needs %d and is isolated", seed, namespace, n)
				}
			}
			if (closed > 0) != (len(problems) > 0) {
				t.Errorf("seed %d: %d namespaces are isolated, and problems are %v", seed, closed, problems)
			}
		}
	}
}

// refusing are tenants with a namespace whose rules are rejected, because they split too many pods of other nodes.
func refusing(t *testing.T) (*tenants, *Compiler, []*cluster.NetworkPolicy) {
	t.Helper()
	w := newTenants("evil", "good")
	w.peers("x", 100, func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n)} })
	var peers []cluster.PolicyPeer
	for n := range 100 {
		peers = append(peers, selecting("n", fmt.Sprint(n)))
	}
	policies := []*cluster.NetworkPolicy{admitting("evil", "p", peers...), admitting("good", "p", peers[:10]...)}
	c := NewCompiler("n1")
	c.bound(Sizes{Policies: 60})
	if tables, problems := w.compile(c, policies...); w.closed(tables) != "evil/pod" {
		t.Fatalf("isolated are %q: %v", w.closed(tables), problems)
	}
	return w, c, policies
}

// without removes pods of other nodes, by their number.
func (t *tenants) without(from, to int) {
	t.snapshot.Pods = cluster.ListOf(slices.DeleteFunc(t.snapshot.Pods.Slice(), func(p *cluster.Pod) bool {
		return p.Name >= fmt.Sprintf("x%04d", from) && p.Name < fmt.Sprintf("x%04d", to)
	})...)
}

// Rejected rules are accepted again when the pods are gone that exceeded the capacity, though nothing else changes on
// the node.
func TestRejectedIsAcceptedAgain(t *testing.T) {
	t.Run("pods of the refused alone", func(t *testing.T) {
		w, c, policies := refusing(t)
		w.without(40, 100)
		if tables, problems := w.compile(c, policies...); w.closed(tables) != "" || len(problems) != 0 {
			t.Errorf("isolated are %q: %v", w.closed(tables), problems)
		}
	})
	t.Run("entries of others", func(t *testing.T) {
		w, c, policies := refusing(t)
		w.without(0, 9)
		for _, passes := range []uint64{3, 1} { // without the rejected policies, with all of them, and once more without
			before := c.pass
			if w.compile(c, policies...); c.pass != before+passes {
				t.Errorf("%d passes, want %d", c.pass-before, passes)
			}
		}
	})
	t.Run("little by little", func(t *testing.T) {
		w, c, policies := refusing(t)
		for from := 100; from > 30; from -= 5 {
			w.without(from-5, from)
			w.compile(c, policies...)
		}
		if tables, problems := w.compile(c, policies...); w.closed(tables) != "" || len(problems) != 0 {
			t.Errorf("isolated are %q: %v", w.closed(tables), problems)
		}
	})
}

// Rejected policies stay rejected at no cost when more is needed, and are evaluated again when less is.
func TestRejectedStaysWhenThereIsMore(t *testing.T) {
	for _, of := range []struct {
		name   string
		change func(*tenants, []*cluster.NetworkPolicy) []*cluster.NetworkPolicy
		passes uint64
	}{
		{"nothing", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy { return p }, 1},
		{"another pod here", func(w *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			w.here("good", "more", &cluster.NetworkPolicy{})
			return p
		}, 1},
		{"another pod elsewhere", func(w *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			w.snapshot.Pods = withPod(w.snapshot.Pods, &cluster.Pod{Namespace: "z", Name: "z", Node: "n2", Addresses: addrs("10.3.0.1"), Labels: cluster.NewLabels(nil)})
			return p
		}, 1},
		{"another policy of others", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			return append(slices.Clone(p), admitting("good", "q"))
		}, 1},
		{"a policy of others is another", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			other := *p[1]
			return []*cluster.NetworkPolicy{p[0], &other}
		}, 1},
		{"another policy of the refused", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			return []*cluster.NetworkPolicy{p[0], admitting("evil", "q"), p[1]}
		}, 2},
		{"the refused is another", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			other := *p[0]
			return []*cluster.NetworkPolicy{&other, p[1]}
		}, 2},
		{"a policy goes", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy { return p[:1] }, 2},
		{"a pod here goes", func(w *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			w.local.Pods = slices.DeleteFunc(slices.Clone(w.local.Pods), func(p LocalPod) bool { return p.Pod.Namespace == "good" })
			return p
		}, 2},
		{"a pod here is another of its name", func(w *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			w.local.Pods = slices.Clone(w.local.Pods)
			w.local.Pods[1].UID = "00000000-0000-0000-0000-000000000001"
			return p
		}, 2},
	} {
		t.Run(of.name, func(t *testing.T) {
			w, c, policies := refusing(t)
			for range 2 { // the second time nothing changes
				before := c.pass
				policies = of.change(w, policies)
				of.change = func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy { return p }
				tables, problems := w.compile(c, policies...)
				if got := w.closed(tables); got != "evil/pod" || len(problems) != 1 {
					t.Errorf("isolated are %q: %v", got, problems)
				}
				if c.pass-before != of.passes {
					t.Errorf("%d passes, want %d", c.pass-before, of.passes)
				}
				of.passes = 1
			}
		})
	}
}

// A removal is noticed also if the removed object was added after a rejection.
func TestWhatCameLaterGoes(t *testing.T) {
	w, c, policies := refusing(t)
	w.compile(c, append(slices.Clone(policies), admitting("good", "q"))...)
	before := c.pass
	if w.compile(c, policies...); c.pass != before+2 {
		t.Errorf("%d passes, want 2", c.pass-before)
	}
}

// Entries far over the capacity are not made, and the decision does not depend on earlier passes.
func TestEntriesAreBoundedBeforeTheyAreMade(t *testing.T) {
	const capacity = 50
	w := newTenants("good")
	w.peers("x", 300, func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n), "app": "web"} })
	var peers []cluster.PolicyPeer
	for n := range 300 {
		peers = append(peers, selecting("n", fmt.Sprint(n)))
	}
	good := admitting("good", "p", selecting("app", "web"))
	var evil []*cluster.NetworkPolicy
	for n := range 20 {
		name := fmt.Sprintf("pod%02d", n)
		evil = append(evil, w.here("evil", name, admitting("evil", name, peers...)))
	}
	compilers := [2]*Compiler{NewCompiler("n1"), NewCompiler("n1")}
	for _, c := range compilers {
		c.bound(Sizes{Policies: capacity})
	}
	w.compile(compilers[0], evil[0], good)

	// The first pass makes a part, and writes none of it.
	snapshot := w.snapshot
	snapshot.NetworkPolicies = append(slices.Clone(evil), good)
	probe := NewCompiler("n1")
	probe.bound(Sizes{Policies: capacity})
	tables, _ := probe.compile(&snapshot, w.local)
	made := 0
	for i := range probe.used {
		made += len(i.value.entries)
	}
	if most := 2 * (4*capacity + len(evil) + 1); made > most || len(tables.Policies) != 0 { // of some in no order, and of the part
		t.Errorf("%d entries are made, and %d written; want %d at most, and 0", made, len(tables.Policies), most)
	}
	var closed [2]string
	for n, c := range compilers {
		tables, problems := w.compile(c, append(slices.Clone(evil), good)...)
		if closed[n] = w.closed(tables); len(tables.Policies) > capacity || w.sets(tables, "good").Ingress == DenyAll {
			t.Errorf("isolated are %q of %d entries: %v", closed[n], len(tables.Policies), problems)
		}
	}
	if closed[0] != closed[1] {
		t.Errorf("isolated are %q after another state, and otherwise %q", closed[0], closed[1])
	}
}

// Whatever is rejected, abandoned half made, and accepted again: pods that are not isolated have what the policies
// allow, and the tables fit.
func TestRandomChangesOfFullTables(t *testing.T) {
	const policies, ports = 12, 25
	rejected, taken := 0, 0
	for seed := range uint64(20) {
		w := newRandomCluster(seed)
		c := NewCompiler("n1")
		c.bound(Sizes{Policies: policies, Ports: ports})
		for step := range 40 {
			for range 1 + w.IntN(3) {
				w.change()
			}
			snapshot := w.snapshot()
			local := localTo("n1", snapshot)
			before := len(c.limits.entries.rejected)
			tables, _ := c.Compile(snapshot, local)
			if now := len(c.limits.entries.rejected); now > before {
				rejected++
			} else if now < before {
				taken++
			}
			if len(tables.Policies) > policies || len(tables.Ports) > ports {
				t.Fatalf("seed %d, step %d: %d and %d entries", seed, step, len(tables.Policies), len(tables.Ports))
			}
			agree(t, tables, snapshot, slices.DeleteFunc(w.queries(local, 60), func(q query) bool {
				return tables.Pods[q.subject].in(q.direction) == DenyAll
			}))
			disjoint(t, tables)
		}
	}
	if rejected < 20 || taken < 20 {
		t.Errorf("rejections increase %d times, and decrease %d times: the case is wrong", rejected, taken)
	}
}
