package cluster

import (
	"maps"
	"slices"
)

// NodeObject is a Node that is valid by itself, from Reduce.
type NodeObject struct{ nodeObject }

// NodeSet is the Nodes of an API server. The last valid state of an invalid object remains active. Conflicts between
// Nodes are decided from the current objects only, so that all nodes decide alike: see Resolve. It is not safe for
// concurrent use.
type NodeSet struct {
	all map[string]*knownNode // by name
	// contested says that the last Resolve found a conflict.
	contested bool
}

// knownNode is an object of an API server.
type knownNode struct {
	// good is the last valid state; nil if none was ever valid.
	good *nodeObject
	// err says why the current state is invalid.
	err error
	// early says that the object was in the first list.
	early bool
}

// Set stores the object of that name, or that it is invalid: then node is nil and err says why. early says that the
// object was in the first list. It returns false if nothing changed.
func (s *NodeSet) Set(name string, node *NodeObject, err error, early bool) bool {
	if s.all == nil {
		s.all = map[string]*knownNode{}
	}
	n := s.all[name]
	if n == nil {
		n = &knownNode{early: early}
		s.all[name] = n
	}
	before, wrong := n.good, n.err
	if n.err = err; err != nil {
		return wrong == nil || wrong.Error() != err.Error()
	}
	n.good = &node.nodeObject
	if before == nil || wrong != nil {
		return true
	}
	compared := *before
	if !s.contested {
		compared.ready = node.ready // readiness decides conflicts only
	}
	return !Equal(compared, node.nodeObject)
}

// Delete removes the object of that name. It returns false if there was none.
func (s *NodeSet) Delete(name string) bool {
	_, known := s.all[name]
	delete(s.all, name)
	return known
}

// Names are the names of all objects, valid or not, in no order.
func (s *NodeSet) Names() []string { return slices.Collect(maps.Keys(s.all)) }

// Resolve gives the active nodes, sorted by name, and their problems. incomplete says that an object of the first
// list has never been valid. Of Nodes with the same address, the one with fewest addresses of its family before it
// keeps it, so that no Node takes another's by appending it. Then the one that is Ready wins, then the newer one, as
// when a machine was replaced, then the first by name. Of Nodes with overlapping pod ranges the older one keeps its
// range: ranges are never allocated twice.
func (s *NodeSet) Resolve() (nodes []Node, problems []NodeProblem, incomplete bool) {
	active := make([]*nodeObject, 0, len(s.all))
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		n := s.all[name]
		if n.err != nil {
			problems = append(problems, NodeProblem{Node: name, Text: n.err.Error(), Invalid: true})
		}
		if n.good != nil {
			active = append(active, n.good)
		}
		incomplete = incomplete || n.early && n.good == nil
	}
	nodes, conflicts := decide(active)
	s.contested = len(conflicts) > 0
	return nodes, append(problems, conflicts...), incomplete
}

// Ready are the names of the nodes that are ready, sorted.
func (s *NodeSet) Ready() (names []string) {
	for name, n := range s.all {
		if n.err == nil && n.good.ready {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
