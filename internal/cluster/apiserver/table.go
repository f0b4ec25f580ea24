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
	// replace stores the whole list and removes all others. The first call always counts as a change.
	replace(items []*item) bool
	// problems are what is wrong with objects.
	problems() []invalidObject
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

// invalidObject is an object with the reason why it is invalid.
type invalidObject struct {
	key  cluster.Key
	uid  string
	text string
	// stays says that the last valid state of the object remains active.
	stays bool
}

// table is the section of a kind whose objects do not conflict with each other. Lists given to snapshots are
// immutable.
type table[T cluster.Object] struct {
	known cluster.List[T]
	// pending are changes since known was made; the zero T means deleted.
	pending map[cluster.Key]T
	wrong   map[cluster.Key]invalidObject
	// flat is known as a slice; nil until slice is called again.
	flat []T
}

func newTable[T cluster.Object]() *table[T] {
	return &table[T]{pending: map[cluster.Key]T{}, wrong: map[cluster.Key]invalidObject{}}
}

func (t *table[T]) set(item *item) bool {
	before := t.wrong[item.key].text
	now := ""
	if item.err == nil {
		delete(t.wrong, item.key)
	} else {
		now = item.err.Error()
		t.wrong[item.key] = invalidObject{key: item.key, uid: item.uid, text: now, stays: true}
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
	if before == now || before != none && now != none && cluster.Equal(before, now) {
		return false
	}
	t.pending[item.key] = now
	return true
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

func (t *table[T]) replace(items []*item) bool {
	there := make(map[cluster.Key]struct{}, len(items))
	changed := false
	for _, item := range items {
		there[item.key] = struct{}{}
		changed = t.set(item) || changed
	}
	gone := slices.Collect(maps.Keys(t.wrong))
	for o := range t.list().All() {
		gone = append(gone, o.Key())
	}
	for _, key := range gone {
		if _, ok := there[key]; !ok {
			changed = t.remove(key) || changed
		}
	}
	return changed
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

func (t *table[T]) problems() []invalidObject {
	var all []invalidObject
	for _, key := range slices.SortedFunc(maps.Keys(t.wrong), cluster.Key.Compare) {
		all = append(all, t.wrong[key])
	}
	return all
}
