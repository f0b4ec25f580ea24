package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// tenants are namespaces with a pod each here, and pods on another node that their policies may be about.
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

// fit compiles policies, in the order that snapshots have, into so many entries.
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

// admitting is a policy with a rule for each of some peers, each with a port of its own.
func admitting(namespace, name string, peers ...cluster.PolicyPeer) *cluster.NetworkPolicy {
	p := &cluster.NetworkPolicy{Namespace: namespace, Name: name, IsolatesIngress: true}
	for n, peer := range peers {
		p.Ingress = append(p.Ingress, cluster.PolicyRule{Peers: []cluster.PolicyPeer{peer}, Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, First: uint16(1 + n), Last: uint16(1 + n)}}})
	}
	return p
}

// The peers that one namespace names do not take the room of others in the table of policies: whom its policies select is closed, and nobody else.
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
			`NetworkPolicy evil/list: its rules do not fit: namespace "evil" asks for 81 entries of the table policies, and there is room for 80 (--policies-max); closed is what it may be about: pod evil/pod`},
		{[]*cluster.NetworkPolicy{naming("evil", "list", 0, 80)}, ""},
		{[]*cluster.NetworkPolicy{naming("evil", "a", 0, 100), naming("evil", "b", 100, 100)},
			`NetworkPolicy evil/a: its rules do not fit: namespace "evil" asks for 200 entries of the table policies, and there is room for 80 (--policies-max); closed is what it may be about: pod evil/pod`},
		{[]*cluster.NetworkPolicy{small, large},
			`NetworkPolicy evil/a: its rules do not fit: namespace "evil" asks for 90 entries of the table policies, and there is room for 80 (--policies-max); closed is what it may be about: pod evil/pod`},
		{[]*cluster.NetworkPolicy{small}, ""}, // the same object as before
	} {
		tables, problems := w.compile(c, append(step.evil, good)...)
		if len(tables.Policies) > 100 {
			t.Errorf("%d entries in a table of 100", len(tables.Policies))
		}
		if sets := w.sets(tables, "good"); sets.Ingress == Closed || sets.Ingress == NotIsolated || allowed(tables, sets.Ingress, "10.2.0.7") == 0 {
			t.Errorf("the pod of the other namespace has %+v of %v", sets, tables.Policies)
		}
		if closed := w.sets(tables, "evil").Ingress == Closed; closed != (step.problem != "") {
			t.Errorf("the pod whose policies need %q is closed: %v", step.problem, closed)
		}
		var texts []string
		for _, p := range problems {
			texts = append(texts, p.Text)
		}
		if got := strings.Join(texts, "\n"); got != step.problem {
			t.Errorf("problems are %q, want %q", got, step.problem)
		}
		// The same snapshot once more changes nothing, and another compiler says the same.
		again, _ := w.compile(c, append(step.evil, good)...)
		anew := NewCompiler("n1")
		anew.bound(Sizes{Policies: 100})
		other, _ := w.compile(anew, append(step.evil, good)...)
		if a, b, o := fmt.Sprint(tables.Pods), fmt.Sprint(again.Pods), fmt.Sprint(other.Pods); a != b || a != o {
			t.Errorf("pods have %s, then %s, and with another compiler %s", a, b, o)
		}
	}
}

// The ports that one namespace lists do not take the room of others, nor memory before that is known.
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
		if sets := w.sets(tables, "good"); sets.Ingress == Closed || allowed(tables, sets.Ingress, "10.2.0.2") == 0 {
			t.Errorf("the pod of the other namespace has %+v of %v", sets, tables.Policies)
		}
		if w.sets(tables, "evil").Ingress != Closed || len(problems) != 1 || !strings.Contains(problems[0].Text, "NetworkPolicy evil/ports: its rules do not fit") {
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
	if tables, problems := w.compile(c, admitting("evil", "ports", selecting("n", "3")), good); len(problems) != 0 || w.sets(tables, "evil").Ingress == Closed {
		t.Errorf("what fits again is refused: %v", problems)
	}
}

// Selectors of one namespace that tell apart what is alike to another make more entries of the other's rules. It is theirs to give way.
func TestWhoTellsPodsApartGivesWay(t *testing.T) {
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
		t.Fatalf("%d entries, want %d: the case is not what it should be", len(tables.Policies), 2<<bits-1)
	}
	c = NewCompiler("n1")
	c.bound(Sizes{Policies: 60})
	tables, problems := w.compile(c, append(evil, good)...)
	if sets := w.sets(tables, "good"); sets.Ingress == Closed || len(tables.Policies) > 60 {
		t.Errorf("the pod of the other namespace has %+v, and there are %d entries", sets, len(tables.Policies))
	}
	if w.sets(tables, "evil").Ingress != Closed || len(problems) == 0 || len(problems) > bits {
		t.Errorf("problems are %v", problems)
	}
}

// Whatever policies ask for, the tables fit, and who asks for no more than an equal part gets it.
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
				if w.sets(tables, namespace).Ingress != Closed {
					continue
				}
				closed++
				if n <= min(policies, ports)/len(needs) {
					t.Errorf("seed %d: namespace %s needs %d and is closed", seed, namespace, n)
				}
			}
			if (closed > 0) != (len(problems) > 0) {
				t.Errorf("seed %d: %d namespaces are closed, and problems are %v", seed, closed, problems)
			}
		}
	}
}
