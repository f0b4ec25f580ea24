package cluster

import "github.com/beeline-cni/beeline/internal/sorted"

// Object is a pointer to an object of a snapshot.
type Object interface {
	comparable
	Key() Key
}

// List is an immutable list of objects of one kind, sorted by Key.
type List[T Object] = sorted.List[Key, T]

// ListOf makes a list of sorted objects. It keeps the slice, which must not change afterwards.
func ListOf[T Object](objects ...T) List[T] { return sorted.ListOf[Key](objects...) }

// Differences visits the objects that differ between two lists, in key order; the zero T stands for a missing one. It
// skips what both share.
func Differences[T Object](before, after List[T], visit func(before, after T)) {
	for was, is := range sorted.Differences(before, after) {
		visit(was, is)
	}
}
