// Package sorted has immutable sorted lists that share what they have in common.
package sorted

import (
	"iter"
	"maps"
	"slices"
	"sort"
)

// Key is what lists are sorted by. The zero Key is the least.
type Key[K any] interface {
	comparable
	Compare(K) int
}

// Object is an object of a list. The zero Object stands for a missing one.
type Object[K any] interface {
	comparable
	Key() K
}

// List is an immutable list of objects, sorted by their keys. Lists that differ in a few objects share the rest. In a
// list of 150,000 a change costs some kilobytes, and finding the changes is as cheap. The zero List is empty.
type List[K Key[K], T Object[K]] struct {
	// chunks are never empty.
	chunks [][]T
	length int
}

// chunkSize is how many objects a chunk has: in a list of n a change copies chunkSize + n/chunkSize pointers.
const chunkSize = 256

// ListOf makes a list of sorted objects. It keeps the slice, which must not change afterwards.
func ListOf[K Key[K], T Object[K]](sorted ...T) List[K, T] {
	if len(sorted) == 0 {
		return List[K, T]{}
	}
	return List[K, T]{[][]T{sorted}, len(sorted)}
}

// Len is how many objects the list has.
func (l List[K, T]) Len() int { return l.length }

// Same reports whether both lists are the same one, without comparing objects. Lists of equal objects may differ.
func (l List[K, T]) Same(other List[K, T]) bool {
	return l.length == other.length && slices.EqualFunc(l.chunks, other.chunks, same)
}

// All visits the objects in their order.
func (l List[K, T]) All() iter.Seq[T] {
	var first K
	return l.From(first)
}

// Slice gives the objects in a new slice.
func (l List[K, T]) Slice() []T { return slices.Concat(l.chunks...) }

// From visits the objects in order, from the first one whose key is not less than a key.
func (l List[K, T]) From(key K) iter.Seq[T] {
	return func(yield func(T) bool) {
		chunk := chunkOf(l.chunks, key)
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
func (l List[K, T]) Find(key K) (object T, found bool) {
	chunk := chunkOf(l.chunks, key)
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
func chunkOf[K Key[K], T Object[K]](chunks [][]T, key K) int {
	return sort.Search(len(chunks), func(i int) bool {
		chunk := chunks[i]
		return chunk[len(chunk)-1].Key().Compare(key) >= 0
	})
}

func find[K Key[K], T Object[K]](sorted []T, key K) (int, bool) {
	return sort.Find(len(sorted), func(i int) int { return key.Compare(sorted[i].Key()) })
}

// With gives the list with some objects replaced or added by key; the zero T removes one.
func (l List[K, T]) With(changes map[K]T) List[K, T] {
	if len(changes) == 0 {
		return l
	}
	keys := slices.SortedFunc(maps.Keys(changes), K.Compare)
	changed := List[K, T]{chunks: make([][]T, 0, len(l.chunks)+1)}
	chunks := l.chunks
	for len(keys) > 0 && len(chunks) > 0 {
		at := min(chunkOf(chunks, keys[0]), len(chunks)-1)
		end := len(keys)
		if at < len(chunks)-1 {
			next := chunks[at+1][0].Key()
			end = sort.Search(len(keys), func(n int) bool { return keys[n].Compare(next) >= 0 })
		}
		changed.add(chunks[:at]...)
		changed.rebuild(merge(chunks[at], keys[:end], changes))
		keys, chunks = keys[end:], chunks[at+1:]
	}
	changed.add(chunks...)
	if len(keys) > 0 { // for an empty list
		changed.rebuild(merge(nil, keys, changes))
	}
	return changed
}

// merge gives a new slice of a chunk with changes for some sorted keys.
func merge[K Key[K], T Object[K]](chunk []T, keys []K, changes map[K]T) []T {
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

func (l *List[K, T]) add(chunks ...[]T) {
	l.chunks = append(l.chunks, chunks...)
	for _, chunk := range chunks {
		l.length += len(chunk)
	}
}

// rebuild appends objects as new chunks of a good size; it merges the last chunk if either is small.
func (l *List[K, T]) rebuild(objects []T) {
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
func Differences[K Key[K], T Object[K]](before, after List[K, T]) iter.Seq2[T, T] {
	return func(yield func(before, after T) bool) { differences(before, after, yield) }
}

func differences[K Key[K], T Object[K]](before, after List[K, T], yield func(before, after T) bool) {
	a, b := cursor[T]{chunks: before.chunks}, cursor[T]{chunks: after.chunks}
	var none T
	for more := true; more; {
		for a.at == 0 && b.at == 0 && len(a.chunks) > 0 && len(b.chunks) > 0 && same(a.chunks[0], b.chunks[0]) {
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
			more = yield(x, none)
		case order > 0:
			more = yield(none, y)
		case x != y:
			more = yield(x, y)
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
type cursor[T any] struct {
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

// same reports whether two slices are the same one.
func same[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
