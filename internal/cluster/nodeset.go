package cluster

import (
	"maps"
	"slices"
	"strings"
)

// NodeObject is a Node that is valid by itself, from Reduce.
type NodeObject struct{ nodeObject }

// NodeSet is the Nodes of an API server. The last valid state of an invalid object remains active. Conflicts between
// Nodes are decided from the current objects only, so that all nodes decide alike: see Resolve. It is not safe for
// concurrent use.
type NodeSet struct {
	origins map[string]*origin // by the node's name
	// contested says that the last Resolve found a conflict.
	contested bool
	// taken are the manifests that claims and nodes are made of, by name. nodes is the result of the last Resolve
	// without conflicts, else nil.
	taken  map[string]*manifest
	claims claimCounts
	nodes  []Node
}

// Set stores the object of that name, or that it is invalid: then node is nil and err says why. early says that the
// object was in the first list. It returns false if nothing changed.
func (s *NodeSet) Set(name string, node *NodeObject, err error, early bool) bool {
	if s.origins == nil {
		s.origins = map[string]*origin{}
	}
	o := s.origins[name]
	if o == nil {
		o = &origin{name: name, early: early}
		s.origins[name] = o
	}
	if err != nil {
		if len(o.errs) == 1 && o.errs[0].Error() == err.Error() {
			return false
		}
		o.read, o.errs = nil, []error{err}
		return true
	}
	if o.read != nil && Equal(o.read.nodes[0], node.nodeObject) {
		return false
	}
	matters := true
	if o.read != nil {
		before := o.read.nodes[0]
		before.ready = node.ready
		matters = s.contested || !Equal(before, node.nodeObject)
	}
	o.read, o.errs = &manifest{nodes: []nodeObject{node.nodeObject}}, nil
	return matters
}

// Delete removes the object of that name. It returns false if there was none.
func (s *NodeSet) Delete(name string) bool {
	_, known := s.origins[name]
	delete(s.origins, name)
	return known
}

// Names are the names of all objects, valid or not, in no order.
func (s *NodeSet) Names() []string { return slices.Collect(maps.Keys(s.origins)) }

// Resolve gives the active nodes, sorted by name, and their problems. incomplete says that an object of the first
// list has never been valid. Of Nodes with the same address, the one with fewest addresses of its family before it
// keeps it, so that no Node takes another's by appending it. Then the one that is Ready wins, then the newer one, as
// when a machine was replaced, then the first by name. Of Nodes with overlapping pod ranges the older one keeps its
// range: ranges are never allocated twice.
func (s *NodeSet) Resolve() (nodes []Node, problems []NodeProblem, incomplete bool) {
	for name, o := range s.origins {
		for _, err := range o.errs {
			problems = append(problems, NodeProblem{Node: name, Text: err.Error(), Invalid: true})
		}
		if o.read != nil {
			o.good = o.read
		}
		incomplete = incomplete || o.early && o.good == nil
	}
	slices.SortStableFunc(problems, func(a, b NodeProblem) int { return strings.Compare(a.Node, b.Node) })
	changed := s.take()
	if s.contested = s.claims.contested(); s.contested {
		claims := nodeClaims{nodes: s.objects()}
		all, refused := claims.decide()
		s.nodes = nil
		return sortedNodes(all), append(problems, refused...), incomplete
	}
	switch {
	case s.nodes == nil:
		s.nodes = sortedNodes(s.objects())
	case len(changed) > 0:
		s.nodes = s.patched(changed)
	}
	return s.nodes, problems, incomplete
}

// take counts the addresses and ranges of the active objects. It gives the names of nodes that changed since the last
// Resolve, sorted.
func (s *NodeSet) take() (changed []string) {
	if s.taken == nil {
		s.taken = map[string]*manifest{}
	}
	for name, before := range s.taken {
		if o := s.origins[name]; o == nil || o.good != before {
			s.claims.remove(&before.nodes[0])
			delete(s.taken, name)
			changed = append(changed, name)
		}
	}
	for name, o := range s.origins {
		if o.good != nil && s.taken[name] == nil {
			s.claims.add(&o.good.nodes[0])
			s.taken[name] = o.good
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// objects are the active ones, sorted by name.
func (s *NodeSet) objects() (all []nodeObject) {
	for _, name := range slices.Sorted(maps.Keys(s.taken)) {
		all = append(all, s.taken[name].nodes...)
	}
	return all
}

// patched gives the nodes with some, by their sorted names, replaced by their current state.
func (s *NodeSet) patched(names []string) []Node {
	nodes, rest := make([]Node, 0, len(s.nodes)+len(names)), s.nodes
	for _, name := range names {
		at, found := slices.BinarySearchFunc(rest, name, func(n Node, name string) int { return strings.Compare(n.Name, name) })
		nodes = append(nodes, rest[:at]...)
		if rest = rest[at:]; found {
			rest = rest[1:]
		}
		if now := s.taken[name]; now != nil {
			nodes = append(nodes, now.nodes[0].Node)
		}
	}
	return append(nodes, rest...)
}

// Ready are the names of the nodes that are ready, sorted.
func (s *NodeSet) Ready() (names []string) {
	for name, o := range s.origins {
		if now := o.read; now != nil && now.nodes[0].ready {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
