package cluster

import (
	"iter"
	"maps"
	"slices"
	"sort"
)

// Object is a pointer to an object of a snapshot.
type Object interface {
	comparable
	Key() Key
}

// List is an immutable list of objects of one kind, sorted by Key. Lists that differ in a few objects share the rest.
// In a cluster of 150,000 pods a new snapshot costs some kilobytes, and finding the changes is as cheap. The zero
// List is empty.
type List[T Object] struct {
	// chunks are never empty.
	chunks [][]T
	length int
}

// chunkSize is how many objects a chunk has: in a list of n a change copies chunkSize + n/chunkSize pointers.
const chunkSize = 256

// ListOf makes a list of sorted objects. It keeps the slice, which must not change afterwards.
func ListOf[T Object](sorted ...T) List[T] {
	if len(sorted) == 0 {
		return List[T]{}
	}
	return List[T]{[][]T{sorted}, len(sorted)}
}

// Len is how many objects the list has.
func (l List[T]) Len() int { return l.length }

// Same reports whether both lists are the same one, without comparing objects. Lists of equal objects may differ.
func (l List[T]) Same(other List[T]) bool {
	return l.length == other.length && slices.EqualFunc(l.chunks, other.chunks, Same)
}

// All visits the objects in their order.
func (l List[T]) All() iter.Seq[T] { return l.From(Key{}) }

// Slice gives the objects in a new slice.
func (l List[T]) Slice() []T { return slices.Concat(l.chunks...) }

// From visits the objects in order, from the first one whose key is not less than a key.
func (l List[T]) From(key Key) iter.Seq[T] {
	return func(yield func(T) bool) {
		chunk := l.chunkOf(key)
		if chunk == len(l.chunks) {
			return
		}
		at, _ := find(l.chunks[chunk], key)
		for ; chunk < len(l.chunks); chunk, at = chunk+1, 0 {
			for _, o := range l.chunks[chunk][at:] {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// Find gives the object of that key.
func (l List[T]) Find(key Key) (object T, found bool) {
	chunk := l.chunkOf(key)
	if chunk == len(l.chunks) {
		return object, false
	}
	at, found := find(l.chunks[chunk], key)
	if found {
		object = l.chunks[chunk][at]
	}
	return object, found
}

// chunkOf gives the index of the first chunk whose last key is not less than a key.
func (l List[T]) chunkOf(key Key) int {
	return sort.Search(len(l.chunks), func(i int) bool {
		chunk := l.chunks[i]
		return chunk[len(chunk)-1].Key().Compare(key) >= 0
	})
}

func find[T Object](sorted []T, key Key) (int, bool) {
	return sort.Find(len(sorted), func(i int) int { return key.Compare(sorted[i].Key()) })
}

// With gives the list with some objects replaced or added by key; the zero T removes one.
func (l List[T]) With(changes map[Key]T) List[T] {
	if len(changes) == 0 {
		return l
	}
	keys := slices.SortedFunc(maps.Keys(changes), Key.Compare)
	changed := List[T]{chunks: make([][]T, 0, len(l.chunks)+1)}
	for i, chunk := range l.chunks {
		end := len(keys)
		if i < len(l.chunks)-1 {
			next := l.chunks[i+1][0].Key()
			end = sort.Search(len(keys), func(n int) bool { return keys[n].Compare(next) >= 0 })
		}
		if end == 0 {
			changed.add(chunk)
			continue
		}
		changed.rebuild(merge(chunk, keys[:end], changes))
		keys = keys[end:]
	}
	if len(keys) > 0 { // for an empty list
		changed.rebuild(merge(nil, keys, changes))
	}
	return changed
}

// merge gives a new slice of a chunk with changes for some sorted keys.
func merge[T Object](chunk []T, keys []Key, changes map[Key]T) []T {
	var none T
	merged := make([]T, 0, len(chunk)+len(keys))
	for _, key := range keys {
		at, found := find(chunk, key)
		merged = append(merged, chunk[:at]...)
		if o := changes[key]; o != none {
			merged = append(merged, o)
		}
		if found {
			at++
		}
		chunk = chunk[at:]
	}
	return append(merged, chunk...)
}

func (l *List[T]) add(chunk []T) {
	l.chunks, l.length = append(l.chunks, chunk), l.length+len(chunk)
}

// rebuild appends objects as new chunks of a good size; it merges the last chunk if either is small.
func (l *List[T]) rebuild(objects []T) {
	if n := len(l.chunks) - 1; n >= 0 && min(len(objects), len(l.chunks[n])) < chunkSize/4 {
		last := l.chunks[n]
		l.chunks, l.length = l.chunks[:n], l.length-len(last)
		objects = slices.Concat(last, objects)
	}
	for len(objects) > 0 {
		n := len(objects)
		if n > 2*chunkSize {
			n = chunkSize
		}
		l.add(slices.Clone(objects[:n])) // a subslice would keep the whole array
		objects = objects[n:]
	}
}

// Differences visits the objects that differ between two lists, in key order; the zero T stands for a missing one. It
// skips chunks that both share.
func Differences[T Object](before, after List[T], visit func(before, after T)) {
	a, b := cursor[T]{chunks: before.chunks}, cursor[T]{chunks: after.chunks}
	var none T
	for {
		for a.at == 0 && b.at == 0 && len(a.chunks) > 0 && len(b.chunks) > 0 && Same(a.chunks[0], b.chunks[0]) {
			a.chunks, b.chunks = a.chunks[1:], b.chunks[1:]
		}
		x, moreOfA := a.object()
		y, moreOfB := b.object()
		order := 0
		switch {
		case !moreOfA && !moreOfB:
			return
		case !moreOfA:
			order = 1
		case !moreOfB:
			order = -1
		case x != y:
			order = x.Key().Compare(y.Key())
		}
		switch {
		case order < 0:
			visit(x, none)
		case order > 0:
			visit(none, y)
		case x != y:
			visit(x, y)
		}
		if order <= 0 {
			a.next()
		}
		if order >= 0 {
			b.next()
		}
	}
}

// cursor is a position in a list.
type cursor[T Object] struct {
	chunks [][]T
	at     int // within the first chunk
}

func (c *cursor[T]) object() (object T, more bool) {
	if len(c.chunks) == 0 {
		return object, false
	}
	return c.chunks[0][c.at], true
}

func (c *cursor[T]) next() {
	if c.at++; c.at == len(c.chunks[0]) {
		c.chunks, c.at = c.chunks[1:], 0
	}
}
