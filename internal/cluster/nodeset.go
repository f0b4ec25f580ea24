package cluster

import (
	"maps"
	"slices"
	"strings"
)

// NodeObject is a Node that Reduce has found right by itself.
type NodeObject struct{ nodeObject }

// NodeSet is the Nodes of an API server. What is in force is settled as between the files of a directory: an
// object that is wrong, or that contradicts another, leaves what it said before in force. It is not safe for
// concurrent use.
type NodeSet struct {
	origins map[string]*origin // by the node's name
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
	o.read, o.errs = &manifest{nodes: []nodeObject{node.nodeObject}}, nil
	return true
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
// the start has never been right.
func (s *NodeSet) Settle() (nodes []Node, problems []error, incomplete bool) {
	origins := slices.SortedFunc(maps.Values(s.origins), func(a, b *origin) int { return strings.Compare(a.name, b.name) })
	objects, _, problems := settle(origins)
	incomplete = slices.ContainsFunc(origins, func(o *origin) bool { return o.early && o.good == nil })
	return sortedNodes(objects), problems, incomplete
}
