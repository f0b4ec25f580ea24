package node

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// OwnFirst resolves conflicts that the node itself can decide: addresses that its devices and its pods have are its own,
// whatever another Node has.
func OwnFirst(s *cluster.Snapshot, self string, local, pods []netip.Addr) (_ *cluster.Snapshot, problems []string) {
	nodes, copied := s.Nodes, false
	change := func(i int) *cluster.Node {
		if !copied {
			nodes, copied = slices.Clone(s.Nodes), true
		}
		return &nodes[i]
	}
	isLocal := func(a netip.Addr) bool { return slices.Contains(local, a) }
	ofPods := make(map[netip.Addr]bool, len(pods))
	for _, a := range pods {
		ofPods[a] = true
	}
	isOwn := func(a netip.Addr) bool { return isLocal(a) || ofPods[a] }
	for i := range s.Nodes {
		n := &s.Nodes[i]
		switch {
		case n.Name == self && slices.ContainsFunc(n.Lost, isLocal):
			own := change(i)
			own.Addresses = slices.Clone(own.Addresses)
			for _, a := range n.Lost {
				if isLocal(a) {
					own.Addresses = append(own.Addresses, a)
				}
			}
			problems = append(problems, fmt.Sprintf("other Nodes have addresses of this node, %v, and other nodes accept them: see the problems there", n.Lost))
		case n.Name != self && slices.ContainsFunc(n.Addresses, isOwn):
			other := change(i)
			other.Addresses = slices.DeleteFunc(slices.Clone(n.Addresses), isOwn)
			problems = append(problems, fmt.Sprintf("Node %s claims addresses of this node or of its pods, of %v: it gets no traffic for them", n.Name, n.Addresses))
		}
	}
	if !copied {
		return s, nil
	}
	with := *s
	with.Nodes = nodes
	return &with, problems
}
