package service

import (
	"fmt"
	"maps"
	"slices"

	"github.com/beeline-cni/beeline/internal/share"
)

// shares decides who gets how much of what all owners share. While everything fits, everybody has what he asks for. Else the namespaces that
// ask for most give way, each down to the same limit; within a namespace owners have theirs in the order of their names. So all nodes decide
// alike, and so does an agent that starts again.
type shares struct {
	total  [resources]int
	spaces map[string]*[resources]int
	// cut says of which resources something was refused in the last round.
	cut [resources]bool
}

// change takes note that an owner asks for something else.
func (s *shares) change(namespace string, before, after load) {
	of := s.spaces[namespace]
	if of == nil {
		of = &[resources]int{}
		s.spaces[namespace] = of
	}
	for r := range resources {
		of[r] += after[r] - before[r]
		s.total[r] += after[r] - before[r]
	}
	if *of == ([resources]int{}) {
		delete(s.spaces, namespace)
	}
}

// divide decides anew, and has visit look at each state for which something is decided otherwise than before.
func (s *shares) divide(states map[owner]*state, limits Limits, visit func(*state)) {
	used := min(s.total[external], limits.external())
	for r := range resources {
		capacity := limits.capacity(r, used)
		over := s.total[r] > capacity
		if !over && !s.cut[r] {
			continue
		}
		s.cut[r] = over
		limit := s.total[r]
		if over {
			limit = s.limit(r, capacity)
		}
		had := map[string]int{}
		for _, o := range slices.SortedFunc(maps.Keys(states), owner.compare) {
			state := states[o]
			if o.pod || state.load[r] == 0 && !state.refused[r] {
				continue
			}
			refused := s.wanted(o.key.Namespace, r) > limit && had[o.key.Namespace]+state.load[r] > limit
			if !refused {
				had[o.key.Namespace] += state.load[r]
			}
			if refused != state.refused[r] {
				state.refused[r] = refused
				visit(state)
			}
		}
	}
}

// limit is how much of a resource one namespace may have.
func (s *shares) limit(r resource, capacity int) int {
	var wanted []int
	for _, of := range s.spaces {
		wanted = append(wanted, of[r])
	}
	return share.Limit(capacity, wanted)
}

func (s *shares) wanted(namespace string, r resource) int {
	if of := s.spaces[namespace]; of != nil {
		return of[r]
	}
	return 0
}

// problems says, once for each namespace and resource, who is refused.
func (s *shares) problems(states map[owner]*state, limits Limits) (all []Problem) {
	for r := range resources {
		if !s.cut[r] {
			continue
		}
		refused := map[string][]owner{}
		for o, state := range states {
			if state.refused[r] && (state.service != nil) {
				refused[o.key.Namespace] = append(refused[o.key.Namespace], o)
			}
		}
		for namespace, owners := range refused {
			first := slices.MinFunc(owners, owner.compare)
			text := limits.full(r, namespace, s.wanted(namespace, r))
			if more := len(owners) - 1; more > 0 {
				text += fmt.Sprintf(" (and so it is with %d more Services there)", more)
			}
			all = append(all, first.problem(states[first].uid(), false, fmt.Sprintf("%s: %s", first, text)))
		}
	}
	return all
}
