package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// listing is a policy that lets so many single addresses of the world in to all pods of its namespace.
func listing(namespace, name string, blocks, from int) *cluster.NetworkPolicy {
	rule := cluster.PolicyRule{}
	for i := range blocks {
		n := from + i
		addr := netip.AddrFrom4([4]byte{203, byte(n >> 16), byte(n >> 8), byte(n)})
		rule.Peers = append(rule.Peers, cluster.PolicyPeer{Block: netip.PrefixFrom(addr, 32)})
	}
	return &cluster.NetworkPolicy{Namespace: namespace, Name: name, IsolatesIngress: true, Ingress: []cluster.PolicyRule{rule}}
}

// The blocks of one namespace take neither the room of pods nor that of others: whom its policies select is closed, and nobody else.
func TestBlocksOfOneNamespaceAreBounded(t *testing.T) {
	s := &cluster.Snapshot{}
	local := Local{Addresses: addrs("192.168.60.11")}
	for i, namespace := range []string{"evil", "good"} {
		s.Namespaces = append(s.Namespaces, &cluster.Namespace{Name: namespace, Labels: cluster.NewLabels(map[string]string{"kubernetes.io/metadata.name": namespace})})
		pod := &cluster.Pod{Namespace: namespace, Name: "pod", Node: "n1", Addresses: addrs(fmt.Sprintf("10.1.1.%d", i+2)), Labels: cluster.NewLabels(nil)}
		s.Pods = withPod(s.Pods, pod)
		local.Pods = append(local.Pods, LocalPod{Pod: pod.Key(), Addresses: pod.Addresses})
	}
	good := listing("good", "list", 10, 1<<20)
	c := NewCompiler("n1")
	c.bound(Sizes{Addresses: 103}) // of which two are pods' and one is the node's
	compile := func(policies ...*cluster.NetworkPolicy) (*Tables, []Problem) {
		t.Helper()
		with := *s
		with.NetworkPolicies = policies
		tables, problems := c.Compile(&with, local)
		if n := len(tables.Identities) + tables.Peers.Len() + len(tables.Singles); n > 103 {
			t.Errorf("%d addresses in a table of 103", n)
		}
		for pod := range s.Pods.All() {
			if _, known := tables.Peers.Get(pod.Addresses[0]); !known {
				t.Errorf("pod %s has no identity", pod.Key())
			}
		}
		if sets := tables.Pods[s.Pods.Slice()[1].Addresses[0]]; sets.Ingress == Closed || sets.Ingress == NotIsolated || sets.Egress != NotIsolated {
			t.Errorf("the pod of the other namespace has %+v", sets)
		}
		return tables, problems
	}
	evil := func(tables *Tables) Set { return tables.Pods[s.Pods.Slice()[0].Addresses[0]].Ingress }

	if tables, problems := compile(listing("evil", "list", 90, 0), good); len(problems) != 0 || evil(tables) == Closed {
		t.Errorf("what fits is refused: %v", problems)
	}
	tables, problems := compile(listing("evil", "list", 91, 0), good)
	if evil(tables) != Closed || len(tables.Singles) != 10 {
		t.Errorf("the pod whose policy does not fit has %x, and there are %d blocks", evil(tables), len(tables.Singles))
	}
	want := `NetworkPolicy evil/list: its 91 ipBlocks and exceptions do not fit: namespace "evil" asks for 91, and there is room for 90 beside the addresses of pods (--identities-max); closed is what it may be about: pod evil/pod`
	if len(problems) != 1 || problems[0].Text != want || problems[0].Policy.Name != "list" {
		t.Errorf("problems are %v, want %s", problems, want)
	}
	// Of several policies of the namespace the first ones fit, but the pod that all select is closed; each is named once.
	tables, problems = compile(listing("evil", "a", 60, 0), listing("evil", "b", 60, 100), listing("evil", "c", 20, 200), good)
	if evil(tables) != Closed || len(problems) != 1 || !strings.HasPrefix(problems[0].Text, "NetworkPolicy evil/b: its 60 ipBlocks") {
		t.Errorf("%x, problems %v", evil(tables), problems)
	}
	if tables, problems := compile(listing("evil", "list", 90, 0), good); len(problems) != 0 || evil(tables) == Closed || len(tables.Singles) != 100 {
		t.Errorf("what fits again is refused: %v", problems)
	}
}
