package sorted

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

type name struct{ Namespace, Name string }

func (n name) Compare(other name) int {
	return cmp.Or(strings.Compare(n.Namespace, other.Namespace), strings.Compare(n.Name, other.Name))
}

func (n name) String() string { return n.Namespace + "/" + n.Name }

type object struct{ Namespace, Name, Node string }

func (o *object) Key() name { return name{o.Namespace, o.Name} }

func namesOf(pods []*object) (all []string) {
	for _, p := range pods {
		all = append(all, p.Key().String()+" "+p.Node)
	}
	return all
}

// checkList compares a list with a map, by each method that reads the list.
func checkList(t *testing.T, list List[name, *object], model map[name]*object) {
	t.Helper()
	var want []*object
	for _, key := range slices.SortedFunc(maps.Keys(model), name.Compare) {
		want = append(want, model[key])
		if got, found := list.Find(key); !found || got != model[key] {
			t.Fatalf("Find(%s) gives %v, %t", key, got, found)
		}
	}
	if diff := gocmp.Diff(namesOf(want), namesOf(list.Slice())); diff != "" {
		t.Fatalf("list (-want +got):\n%s", diff)
	}
	if list.Len() != len(want) {
		t.Fatalf("Len() is %d of %d", list.Len(), len(want))
	}
	for _, key := range []name{{}, {Name: "a"}, {Namespace: "ns1"}, {Namespace: "ns1", Name: "p0500"}, {Namespace: "z"}} {
		at, _ := find(want, key)
		if diff := gocmp.Diff(namesOf(want[at:]), namesOf(slices.Collect(list.From(key)))); diff != "" {
			t.Fatalf("From(%s) (-want +got):\n%s", key, diff)
		}
	}
	if got, found := list.Find(name{Namespace: "ns1", Name: "none"}); found || got != nil {
		t.Fatalf("Find of a missing key gives %v", got)
	}
	for _, chunk := range list.chunks {
		if len(chunk) == 0 || len(chunk) > 2*chunkSize+chunkSize/4 {
			t.Fatalf("a chunk of %d", len(chunk))
		}
	}
}

// Lists hold what a map would through thousands of changes, never change themselves, and tell exactly what differs.
func TestListAgainstMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var list List[name, *object]
	model := map[name]*object{}
	var before List[name, *object]
	modelBefore := map[name]*object{}
	for round := range 300 {
		changes := map[name]*object{}
		for range 1 + random.IntN([]int{3, 30, 1500}[round%3]) {
			key := name{Namespace: fmt.Sprintf("ns%d", random.IntN(3)), Name: fmt.Sprintf("p%04d", random.IntN(1000))}
			pod := &object{Namespace: key.Namespace, Name: key.Name, Node: fmt.Sprint(round)}
			if random.IntN(3) == 0 || round > 250 {
				pod = nil
			}
			if changes[key] = pod; pod == nil {
				delete(model, key)
			} else {
				model[key] = pod
			}
		}
		list = list.With(changes)
		checkList(t, list, model)
		if random.IntN(4) > 0 {
			continue
		}
		for _, pair := range []struct {
			before, after           List[name, *object]
			modelBefore, modelAfter map[name]*object
		}{{before, list, modelBefore, model}, {list, before, model, modelBefore}} {
			was := maps.Clone(pair.modelBefore)
			last := name{}
			for a, b := range Differences(pair.before, pair.after) {
				key := name{}
				if a != nil {
					key = a.Key()
				}
				if b != nil {
					key = b.Key()
				}
				if a == b || was[key] != a || last.Compare(key) >= 0 {
					t.Fatalf("%s: visited %v and %v after %s, was %v", key, a, b, last, was[key])
				}
				if last = key; b == nil {
					delete(was, key)
				} else {
					was[key] = b
				}
			}
			if !maps.Equal(was, pair.modelAfter) {
				t.Fatalf("what differs does not lead from %d pods to %d, but to %d", len(pair.modelBefore), len(pair.modelAfter), len(was))
			}
		}
		checkList(t, before, modelBefore) // it has not changed meanwhile
		before, modelBefore = list, maps.Clone(model)
	}
}

// A list that differs in one object shares nearly all of the other.
func TestListShares(t *testing.T) {
	var all []*object
	for i := range 10_000 {
		all = append(all, &object{Namespace: "ns", Name: fmt.Sprintf("p%05d", i)})
	}
	changes := map[name]*object{}
	for _, p := range all {
		changes[p.Key()] = p
	}
	list := List[name, *object]{}.With(changes)
	key := name{Namespace: "ns", Name: "p05000"}
	changed := list.With(map[name]*object{key: {Namespace: key.Namespace, Name: key.Name, Node: "n"}})
	if list.Same(changed) || !list.Same(list.With(nil)) {
		t.Error("lists are the same that are not, or are not that are")
	}
	shared := 0
	for i, chunk := range list.chunks {
		if same(chunk, changed.chunks[i]) {
			shared++
		}
	}
	if n := len(list.chunks); n < 10 || shared != n-1 {
		t.Errorf("%d of %d chunks are shared, want all but one", shared, n)
	}
	visited := 0
	for before, after := range Differences(list, changed) {
		if visited++; before.Key() != key || after.Key() != key {
			t.Errorf("visited %s and %s", before.Key(), after.Key())
		}
	}
	if visited != 1 {
		t.Errorf("%d objects differ, want 1", visited)
	}
}
