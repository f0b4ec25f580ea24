package cluster

import (
	"maps"
	"slices"
	"strings"
)

// NodeObject is a Node that Reduce has found right by itself.
type NodeObject struct{ nodeObject }

// NodeSet is the Nodes of an API server. An object that is wrong leaves what it said before in force. What several Nodes claim is decided by what the
// objects say now, so that all nodes decide alike: see Settle. It is not safe for concurrent use.
type NodeSet struct {
	origins map[string]*origin // by the node's name
	// contested says that in the last Settle several Nodes claimed the same.
	contested bool
	// taken are the manifests that claims and nodes are made of, by name. nodes are those in force after the last Settle if none was contested, else nil.
	taken  map[string]*manifest
	claims claimCounts
	nodes  []Node
}

// Set notes what the object of that name says, or that it is wrong: then node is nil and err says why. early says that the
// object was there when all were first listed. It returns false if nothing has changed by it.
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

// Delete forgets the object of that name. It returns false if there was none.
func (s *NodeSet) Delete(name string) bool {
	_, known := s.origins[name]
	delete(s.origins, name)
	return known
}

// Names are the names of all objects, right or wrong, in no order.
func (s *NodeSet) Names() []string { return slices.Collect(maps.Keys(s.origins)) }

// Settle gives the nodes in force, sorted by name, and what is wrong. incomplete says that an object that was there from
// the start has never been right. Of Nodes with one address the one has it that has fewest of its family before it, so
// that nobody adds another's address to his own; then the one that is Ready; then the newer one, as when a machine was replaced; then the first by name. Of
// Nodes with overlapping pod ranges the older one has its own: who gives ranges out gives none twice.
func (s *NodeSet) Settle() (nodes []Node, problems []NodeProblem, incomplete bool) {
	for name, o := range s.origins {
		for _, err := range o.errs {
			problems = append(problems, NodeProblem{Node: name, Text: err.Error(), Wrong: true})
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

// take counts what the objects in force claim, and gives the names of those that are others than in the last Settle, sorted.
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

// objects are those in force, sorted by name.
func (s *NodeSet) objects() (all []nodeObject) {
	for _, name := range slices.Sorted(maps.Keys(s.taken)) {
		all = append(all, s.taken[name].nodes...)
	}
	return all
}

// patched gives the nodes with those of some names, which are sorted, as they are now.
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
