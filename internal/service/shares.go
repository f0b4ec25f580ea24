package service

import (
	"fmt"
	"maps"
	"slices"

	"github.com/beeline-cni/beeline/internal/share"
)

// shares divides each resource among all owners. While everything fits, everyone gets their demand. Otherwise the namespaces
// with the largest demand are reduced to one common limit; within a namespace owners are served in the order of their names. So
// all nodes decide alike, also after a restart.
type shares struct {
	total  [resources]int
	spaces map[string]*[resources]int
	// reduced says for each resource whether something was rejected in the last round.
	reduced [resources]bool
}

// change replaces the demand of an owner.
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

// divide decides anew, and calls visit for each state whose decision changed.
func (s *shares) divide(states map[owner]*state, limits Limits, visit func(*state)) {
	used := min(s.total[external], limits.external())
	for r := range resources {
		capacity := limits.capacity(r, used)
		over := s.total[r] > capacity
		if !over && !s.reduced[r] {
			continue
		}
		s.reduced[r] = over
		limit := s.total[r]
		if over {
			limit = s.limit(r, capacity)
		}
		had := map[string]int{}
		for _, o := range slices.SortedFunc(maps.Keys(states), owner.compare) {
			state := states[o]
			if o.pod || state.load[r] == 0 && !state.rejected[r] {
				continue
			}
			rejected := s.wanted(o.key.Namespace, r) > limit && had[o.key.Namespace]+state.load[r] > limit
			if !rejected {
				had[o.key.Namespace] += state.load[r]
			}
			if rejected != state.rejected[r] {
				state.rejected[r] = rejected
				visit(state)
			}
		}
	}
}

// limit returns how much of a resource one namespace may have.
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

// problems reports, once for each namespace and resource, which owners are rejected.
func (s *shares) problems(states map[owner]*state, limits Limits) (all []Problem) {
	for r := range resources {
		if !s.reduced[r] {
			continue
		}
		rejected := map[string][]owner{}
		for o, state := range states {
			if state.rejected[r] && (state.service != nil) {
				rejected[o.key.Namespace] = append(rejected[o.key.Namespace], o)
			}
		}
		for namespace, owners := range rejected {
			first := slices.MinFunc(owners, owner.compare)
			text := limits.full(r, namespace, s.wanted(namespace, r))
			if more := len(owners) - 1; more > 0 {
				text += fmt.Sprintf(" (likewise %d more Services there)", more)
			}
			all = append(all, first.problem(states[first].uid(), false, fmt.Sprintf("%s: %s", first, text)))
		}
	}
	return all
}
