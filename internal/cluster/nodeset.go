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
	origins := slices.SortedFunc(maps.Values(s.origins), func(a, b *origin) int { return strings.Compare(a.name, b.name) })
	var all []nodeObject
	for _, o := range origins {
		for _, err := range o.errs {
			problems = append(problems, NodeProblem{Node: o.name, Text: err.Error(), Wrong: true})
		}
		if o.read != nil {
			o.good = o.read
		}
		if o.good != nil {
			all = append(all, o.good.nodes...)
		}
		incomplete = incomplete || o.early && o.good == nil
	}
	claims := nodeClaims{nodes: all}
	all, refused := claims.decide()
	s.contested = len(refused) > 0
	return sortedNodes(all), append(problems, refused...), incomplete
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
