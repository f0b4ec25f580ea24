package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Resolving step by step gives the same as resolving all Nodes at once, whatever conflicts.
func TestResolveStepByStep(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var set NodeSet
	there := map[string]*corev1.Node{}
	put := func(set *NodeSet, n *corev1.Node) {
		object, err := Reduce(n)
		if err != nil {
			t.Fatal(err)
		}
		set.Set(n.Name, object.(*NodeObject), nil, false)
	}
	contested, free := 0, 0
	for step := range 2000 {
		name := fmt.Sprintf("n%d", random.IntN(12))
		if random.IntN(3) == 0 {
			set.Delete(name)
			delete(there, name)
		} else {
			n := claimant(name, random.IntN(5), random.IntN(2) == 0, fmt.Sprintf("10.1.%d.0/%d", 16*random.IntN(16), 20+random.IntN(5)),
				fmt.Sprintf("192.0.2.%d", random.IntN(60)), fmt.Sprintf("2001:db8::%d", random.IntN(60)))
			put(&set, n)
			there[name] = n
		}
		if random.IntN(3) == 0 {
			continue // several changes before the next look
		}
		var fresh NodeSet
		for _, n := range there {
			put(&fresh, n)
		}
		got, problems, _ := set.Resolve()
		want, wantProblems, _ := fresh.Resolve()
		if !EqualNodes(got, want) || fmt.Sprint(problems) != fmt.Sprint(wantProblems) {
			t.Fatalf("step %d: nodes %+v, want %+v; problems %v, want %v", step, got, want, problems, wantProblems)
		}
		if set.contested != (len(problems) > 0) {
			t.Fatalf("step %d: contested is %t with problems %v", step, set.contested, problems)
		}
		if set.contested {
			contested++
		} else {
			free++
		}
	}
	if contested < 100 || free < 100 {
		t.Errorf("%d steps with conflicts, %d without: the test covers too little", contested, free)
	}
}

// Nodes are equal only if all fields are equal.
func TestEqualNode(t *testing.T) {
	values := map[reflect.Type]any{
		reflect.TypeFor[string](): "x", reflect.TypeFor[bool](): true,
		reflect.TypeFor[[]netip.Addr](): []netip.Addr{{}}, reflect.TypeFor[[]netip.Prefix](): []netip.Prefix{{}},
	}
	for field := range reflect.TypeFor[Node]().Fields() {
		var other Node
		reflect.ValueOf(&other).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(values[field.Type]))
		if other.Equal(&Node{}) || !other.Equal(&other) {
			t.Errorf("field %s makes no difference", field.Name)
		}
	}
}

// BenchmarkResolve adds and removes a Node of 5,000.
func BenchmarkResolve(b *testing.B) {
	var set NodeSet
	put := func(i int) {
		object, err := Reduce(claimant(fmt.Sprintf("node-%d", i), 1, true, fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255), fmt.Sprintf("172.16.%d.%d", i>>8, i&255)))
		if err != nil {
			b.Fatal(err)
		}
		set.Set(fmt.Sprintf("node-%d", i), object.(*NodeObject), nil, false)
	}
	for i := range 5000 {
		put(i)
	}
	vetter := Vetter{Self: "node-0"}
	b.ReportAllocs()
	for b.Loop() {
		put(5000)
		nodes, _, _ := set.Resolve()
		vetter.Vet(&Snapshot{Nodes: nodes})
		set.Delete("node-5000")
		nodes, _, _ = set.Resolve()
		vetter.Vet(&Snapshot{Nodes: nodes})
	}
}
