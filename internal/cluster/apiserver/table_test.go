package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// The table behaves as a sorted map, and its lists never change.
func TestTableAgainstMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table, model := newTable[*cluster.Pod](cluster.KindPod), map[cluster.Key]string{}
	type taken struct {
		list cluster.List[*cluster.Pod]
		said []string
	}
	var lists []taken
	for range 3000 {
		key := cluster.Key{Namespace: fmt.Sprintf("ns%d", random.IntN(3)), Name: fmt.Sprintf("p%d", random.IntN(20))}
		node := fmt.Sprintf("n%d", random.IntN(3))
		made := &item{key: key, reduced: &cluster.Pod{Namespace: key.Namespace, Name: key.Name, Node: node}}
		before, known := model[key]
		var changed, want bool
		switch random.IntN(4) {
		case 0:
			changed, want = table.remove(key), known
			delete(model, key)
		case 1: // of no interest any more
			changed, want = table.set(&item{key: key}), known
			delete(model, key)
		case 2:
			changed, want = table.set(made), before != node
			model[key] = node
		case 3:
			if random.IntN(10) == 0 {
				changed = replace(table, []*item{made})
				want = len(model) != 1 || before != node
				model = map[cluster.Key]string{key: node}
			}
		}
		if changed != want {
			t.Fatalf("%s: changed is %t, want %t", key, changed, want)
		}
		if random.IntN(3) == 0 {
			list := table.list()
			var wanted []string
			for _, key := range slices.SortedFunc(maps.Keys(model), cluster.Key.Compare) {
				wanted = append(wanted, key.String()+" "+model[key])
			}
			if diff := cmp.Diff(wanted, words(list)); diff != "" {
				t.Fatalf("list (-want +got):\n%s", diff)
			}
			if !list.Same(table.list()) {
				t.Fatal("the list is another one without a change")
			}
			lists = append(lists, taken{list, wanted})
		}
	}
	for _, l := range lists {
		if diff := cmp.Diff(l.said, words(l.list)); diff != "" {
			t.Fatalf("a list that was given has changed (-then +now):\n%s", diff)
		}
	}
}

func words(pods cluster.List[*cluster.Pod]) (all []string) {
	for p := range pods.All() {
		all = append(all, p.Key().String()+" "+p.Node)
	}
	return all
}

func TestTableOfWrongObjects(t *testing.T) {
	table := newTable[*cluster.Pod](cluster.KindPod)
	key := cluster.Key{Namespace: "default", Name: "p"}
	good := &item{key: key, reduced: &cluster.Pod{Namespace: "default", Name: "p", Node: "n1"}}
	wrong := &item{key: key, err: errors.New("nonsense")}
	for i, step := range []struct {
		what     string
		do       func() bool
		changed  bool
		problems int
		list     int
	}{
		{"wrong", func() bool { return table.set(wrong) }, true, 1, 0},
		{"wrong again", func() bool { return table.set(wrong) }, false, 1, 0},
		{"right", func() bool { return table.set(good) }, true, 0, 1},
		{"wrong", func() bool { return table.set(wrong) }, true, 1, 1},
		{"as it was", func() bool { return table.set(good) }, true, 0, 1},
		{"wrong in a list", func() bool { return replace(table, []*item{wrong}) }, true, 1, 1},
		{"not in a list", func() bool { return replace(table, nil) }, true, 0, 0},
		{"wrong", func() bool { return table.set(wrong) }, true, 1, 0},
		{"gone", func() bool { return table.remove(key) }, true, 0, 0},
		{"gone again", func() bool { return table.remove(key) }, false, 0, 0},
	} {
		if changed := step.do(); changed != step.changed || len(table.problems()) != step.problems || table.list().Len() != step.list {
			t.Errorf("step %d, %s: changed %t, problems %v, list %v", i, step.what, changed, table.problems(), words(table.list()))
		}
	}
}

// An object that is wrong but usable replaces its last valid state.
func TestTableOfObjectsThatAreWrongInPart(t *testing.T) {
	table := newTable[*cluster.NetworkPolicy](cluster.KindNetworkPolicy)
	key := cluster.Key{Namespace: "a", Name: "p"}
	item := func(wrong string) *item {
		i := &item{key: key, reduced: &cluster.NetworkPolicy{Namespace: "a", Name: "p", Invalid: wrong}}
		if wrong != "" {
			i.err = errors.New(wrong)
		}
		return i
	}
	for n, c := range []struct {
		wrong    string
		changed  bool
		problems int
	}{{"", true, 0}, {"nonsense", true, 1}, {"nonsense", false, 1}, {"more nonsense", true, 1}, {"", true, 0}} {
		if changed := table.set(item(c.wrong)); changed != c.changed {
			t.Errorf("step %d: changed %t", n, changed)
		}
		if all := table.slice(); len(all) != 1 || all[0].Invalid != c.wrong || len(table.problems()) != c.problems {
			t.Errorf("step %d: got %+v, problems %v", n, all, table.problems())
		}
	}
}
