// Package cluster turns Kubernetes objects into immutable snapshots of what this node has to know. Where
// the objects come from (a directory of manifests, an API server) stays behind Source.
package cluster

import (
	"context"
	"net/netip"
)

// Node is one node of the cluster, reduced to what the network needs.
type Node struct {
	Name string
	// Addresses are the InternalIP addresses of status.addresses, in their order.
	Addresses []netip.Addr
	// PodCIDRs are spec.podCIDRs (or spec.podCIDR), at most one of each family.
	PodCIDRs []netip.Prefix
}

// Snapshot is the state of the cluster at one moment. It is never changed after it was delivered.
type Snapshot struct {
	// Nodes are sorted by name.
	Nodes []Node
	// Incomplete says that some of what the source found when it began has never been understood: what an
	// earlier reader knew of it is not to be taken for deleted.
	Incomplete bool
}

// Node gives the node of that name.
func (s *Snapshot) Node(name string) (Node, bool) {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// Source delivers snapshots. Implementations: NewManifests (a directory); an API server later.
type Source interface {
	// Run delivers a first snapshot as soon as one can be had and then one for every change, from a
	// single goroutine, until ctx ends; it returns nil then. Input that cannot be understood does not
	// end Run: the last good state stays in force and Problems says what is wrong.
	Run(ctx context.Context, deliver func(*Snapshot)) error
	// Problems are the complaints in force now, one sentence each with file and line; none when all is well.
	Problems() []string
}
