package policy

import "github.com/beeline-cni/beeline/internal/cluster"

// eachDifference visits the objects that differ between two lists sorted by name. What is in one of them only has nil for the other. Objects
// that are as they were are the same pointers: to pass over 150,000 of them takes a tenth of a millisecond.
func eachDifference[Object any, Pointer interface {
	*Object
	Key() cluster.Key
}](before, after []Pointer, visit func(before, after Pointer)) {
	if cluster.Same(before, after) {
		return
	}
	for len(before) > 0 || len(after) > 0 {
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		case before[0] != after[0]:
			if order = before[0].Key().Compare(after[0].Key()); order == 0 {
				visit(before[0], after[0])
			}
		}
		if order < 0 {
			visit(before[0], nil)
		}
		if order > 0 {
			visit(nil, after[0])
		}
		if order <= 0 {
			before = before[1:]
		}
		if order >= 0 {
			after = after[1:]
		}
	}
}
