package apiserver

import (
	"maps"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// section holds the objects of one kind. It is not safe for concurrent use: Source's lock guards all sections.
type section interface {
	// set stores an object and returns false if nothing changed.
	set(item *item) bool
	// remove removes an object.
	remove(key cluster.Key) bool
	// keys are those of all objects, valid or not. They may repeat.
	keys() []cluster.Key
	// problems are what is wrong with objects.
	problems() []cluster.ObjectProblem
}

// replace stores the whole list and removes all others.
func replace(s section, items []*item) (changed bool) {
	there := make(map[cluster.Key]struct{}, len(items))
	for _, item := range items {
		there[item.key] = struct{}{}
		changed = s.set(item) || changed
	}
	for _, key := range s.keys() {
		if _, ok := there[key]; !ok {
			changed = s.remove(key) || changed
		}
	}
	return changed
}

// item is one object after cluster.Reduce.
type item struct {
	key cluster.Key
	// reduced is nil if the object is wrong (err says why) or of no interest. A wrong object with a result is used as
	// far as it is valid.
	reduced any
	err     error
	// own is set for this node's own Node.
	own *ownNode
	// uid is that of a wrong object.
	uid string
}

// table is the section of a kind whose objects do not conflict with each other. Lists given to snapshots are
// immutable.
type table[T cluster.Object] struct {
	kind  cluster.Kind
	known cluster.List[T]
	// pending are changes since known was made; the zero T means deleted.
	pending map[cluster.Key]T
	wrong   map[cluster.Key]cluster.ObjectProblem
	// matters says whether a changed object is a change for others; nil: it always is.
	matters func(before, now T) bool
	// flat is known as a slice; nil until slice is called again.
	flat []T
}

func newTable[T cluster.Object](kind cluster.Kind) *table[T] {
	return &table[T]{kind: kind, pending: map[cluster.Key]T{}, wrong: map[cluster.Key]cluster.ObjectProblem{}}
}

func (t *table[T]) set(item *item) bool {
	before := t.wrong[item.key].Text
	now := ""
	if item.err == nil {
		delete(t.wrong, item.key)
	} else {
		now = item.err.Error() + "; its last valid state remains active"
		if t.kind == cluster.KindNetworkPolicy {
			now = item.err.Error() + "; the pods that it selects are isolated"
		}
		if t.kind == cluster.KindPod && item.reduced != nil {
			now = item.err.Error() + "; it keeps the limits that it has"
		}
		if t.kind == cluster.KindIPPool {
			now = item.err.Error() + "; new pods that it selects get no address"
		}
		t.wrong[item.key] = cluster.ObjectProblem{Kind: t.kind, Key: item.key, UID: item.uid, Text: now}
	}
	isNew := before != now
	if item.err != nil && item.reduced == nil {
		return isNew // its last valid state remains
	}
	return t.take(item) || isNew
}

// take makes an object current.
func (t *table[T]) take(item *item) bool {
	now, _ := item.reduced.(T)
	var none T
	before := t.current(item.key)
	replaced := before != none && now != none
	if before == now || replaced && cluster.Equal(before, now) {
		return false
	}
	t.pending[item.key] = now
	return !replaced || t.matters == nil || t.matters(before, now)
}

func (t *table[T]) remove(key cluster.Key) bool {
	_, wasWrong := t.wrong[key]
	delete(t.wrong, key)
	var none T
	if t.current(key) == none {
		return wasWrong
	}
	t.pending[key] = none
	return true
}

func (t *table[T]) keys() []cluster.Key {
	all := slices.Collect(maps.Keys(t.wrong))
	for o := range t.list().All() {
		all = append(all, o.Key())
	}
	return all
}

// current gives the current object, or the zero T.
func (t *table[T]) current(key cluster.Key) T {
	if o, changed := t.pending[key]; changed {
		return o
	}
	o, _ := t.known.Find(key)
	return o
}

// list gives the current objects: the same list until something changes.
func (t *table[T]) list() cluster.List[T] {
	if len(t.pending) > 0 {
		t.known, t.flat = t.known.With(t.pending), nil
		t.pending = map[cluster.Key]T{}
	}
	return t.known
}

// slice gives them as a slice: the same one until something changes.
func (t *table[T]) slice() []T {
	if list := t.list(); t.flat == nil {
		t.flat = list.Slice()
	}
	return t.flat
}

func (t *table[T]) problems() (all []cluster.ObjectProblem) {
	for _, key := range slices.SortedFunc(maps.Keys(t.wrong), cluster.Key.Compare) {
		all = append(all, t.wrong[key])
	}
	return all
}
