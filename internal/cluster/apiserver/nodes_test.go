package apiserver

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// put stores a Node that is some minutes old. It returns false if nothing changed.
func (n *nodes) put(t *testing.T, name string, minutes int, ready bool, cidr string, addresses ...string) bool {
	t.Helper()
	full := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-time.Duration(minutes) * time.Minute))}}
	if cidr != "" {
		full.Spec.PodCIDRs = []string{cidr}
	}
	for _, a := range addresses {
		full.Status.Addresses = append(full.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	if ready {
		full.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	reduced, err := cluster.Reduce(full)
	if err != nil {
		t.Fatal(err)
	}
	return n.set(&item{key: cluster.Key{Name: name}, reduced: reduced})
}

// Readiness decides between Nodes that conflict at once, and is no change otherwise.
func TestReadyDecides(t *testing.T) {
	n := newNodes("")
	n.put(t, "old", 60, true, "", "192.0.2.1")
	n.resolve()
	if n.put(t, "old", 60, false, "", "192.0.2.1") {
		t.Error("a Node without a conflict that is not ready is a change")
	}
	n.put(t, "recent", 1, false, "", "192.0.2.1")
	n.resolve()
	if !n.put(t, "old", 60, true, "", "192.0.2.1") {
		t.Error("a Node with a conflict that is ready is no change")
	}
	if nodes, _ := n.resolve(); len(nodes[0].Addresses) != 1 || len(nodes[1].Lost) != 1 || len(n.ready()) != 1 {
		t.Errorf("nodes are %+v, ready %v", nodes, n.ready())
	}
}

// Resolving step by step gives the same as resolving all Nodes at once, whatever conflicts.
func TestResolveStepByStep(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	all := newNodes("")
	there := map[string]func(*nodes){}
	contested, free := 0, 0
	for step := range 2000 {
		name := fmt.Sprintf("n%d", random.IntN(12))
		if random.IntN(3) == 0 {
			all.remove(cluster.Key{Name: name})
			delete(there, name)
		} else {
			minutes, ready, cidr := random.IntN(5), random.IntN(2) == 0, fmt.Sprintf("10.1.%d.0/%d", 16*random.IntN(16), 20+random.IntN(5))
			v4, v6 := fmt.Sprintf("192.0.2.%d", random.IntN(60)), fmt.Sprintf("2001:db8::%d", random.IntN(60))
			there[name] = func(n *nodes) { n.put(t, name, minutes, ready, cidr, v4, v6) }
			there[name](all)
		}
		if random.IntN(3) == 0 {
			continue // several changes before the next look
		}
		fresh := newNodes("")
		for _, put := range there {
			put(fresh)
		}
		got, _ := all.resolve()
		want, _ := fresh.resolve()
		if !cluster.EqualNodes(got, want) || fmt.Sprint(all.problems()) != fmt.Sprint(fresh.problems()) {
			t.Fatalf("step %d: nodes %+v, want %+v; problems %v, want %v", step, got, want, all.problems(), fresh.problems())
		}
		if len(all.problems()) > 0 {
			contested++
		} else {
			free++
		}
	}
	if contested < 100 || free < 100 {
		t.Errorf("%d steps with conflicts, %d without: the test covers too little", contested, free)
	}
}
