package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func namesOf(pods []*Pod) (all []string) {
	for _, p := range pods {
		all = append(all, p.Key().String()+" "+p.Node)
	}
	return all
}

// checkList compares a list with a map, by each method that reads the list.
func checkList(t *testing.T, list List[*Pod], model map[Key]*Pod) {
	t.Helper()
	var want []*Pod
	for _, key := range slices.SortedFunc(maps.Keys(model), Key.Compare) {
		want = append(want, model[key])
		if got, found := list.Find(key); !found || got != model[key] {
			t.Fatalf("Find(%s) gives %v, %t", key, got, found)
		}
	}
	if diff := cmp.Diff(namesOf(want), namesOf(list.Slice())); diff != "" {
		t.Fatalf("list (-want +got):\n%s", diff)
	}
	if list.Len() != len(want) {
		t.Fatalf("Len() is %d of %d", list.Len(), len(want))
	}
	for _, key := range []Key{{}, {Name: "a"}, {Namespace: "ns1"}, {Namespace: "ns1", Name: "p0500"}, {Namespace: "z"}} {
		at, _ := find(want, key)
		if diff := cmp.Diff(namesOf(want[at:]), namesOf(slices.Collect(list.From(key)))); diff != "" {
			t.Fatalf("From(%s) (-want +got):\n%s", key, diff)
		}
	}
	if got, found := list.Find(Key{Namespace: "ns1", Name: "none"}); found || got != nil {
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
	var list List[*Pod]
	model := map[Key]*Pod{}
	var before List[*Pod]
	modelBefore := map[Key]*Pod{}
	for round := range 300 {
		changes := map[Key]*Pod{}
		for range 1 + random.IntN([]int{3, 30, 1500}[round%3]) {
			key := Key{Namespace: fmt.Sprintf("ns%d", random.IntN(3)), Name: fmt.Sprintf("p%04d", random.IntN(1000))}
			pod := &Pod{Namespace: key.Namespace, Name: key.Name, Node: fmt.Sprint(round)}
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
			before, after           List[*Pod]
			modelBefore, modelAfter map[Key]*Pod
		}{{before, list, modelBefore, model}, {list, before, model, modelBefore}} {
			was := maps.Clone(pair.modelBefore)
			last := Key{}
			Differences(pair.before, pair.after, func(a, b *Pod) {
				key := Key{}
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
			})
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
	var all []*Pod
	for i := range 10_000 {
		all = append(all, &Pod{Namespace: "ns", Name: fmt.Sprintf("p%05d", i)})
	}
	changes := map[Key]*Pod{}
	for _, p := range all {
		changes[p.Key()] = p
	}
	list := List[*Pod]{}.With(changes)
	key := Key{Namespace: "ns", Name: "p05000"}
	changed := list.With(map[Key]*Pod{key: {Namespace: key.Namespace, Name: key.Name, Node: "n"}})
	if list.Same(changed) || !list.Same(list.With(nil)) {
		t.Error("lists are the same that are not, or are not that are")
	}
	shared := 0
	for i, chunk := range list.chunks {
		if Same(chunk, changed.chunks[i]) {
			shared++
		}
	}
	if n := len(list.chunks); n < 10 || shared != n-1 {
		t.Errorf("%d of %d chunks are shared, want all but one", shared, n)
	}
	visited := 0
	Differences(list, changed, func(before, after *Pod) {
		if visited++; before.Key() != key || after.Key() != key {
			t.Errorf("visited %s and %s", before.Key(), after.Key())
		}
	})
	if visited != 1 {
		t.Errorf("%d objects differ, want 1", visited)
	}
}
