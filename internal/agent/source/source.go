// Package source connects the agent to the source of the cluster's state.
package source

import (
	"net/netip"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// APIServer is a source that may be unreachable.
type APIServer interface {
	// Host names the server.
	Host() string
	// Outages gives how often it became unreachable, and whether it is now.
	Outages() (count int, now bool)
	// Addresses are those at which it is reached.
	Addresses() []netip.AddrPort
	// ObjectProblems are the problems of objects, which every node sees.
	ObjectProblems() []cluster.ObjectProblem
	// ReadyNodes are the names of the nodes that are ready.
	ReadyNodes() []string
}

// Describe describes a source, and counts the objects of its snapshot, which is nil without one.
func Describe(source cluster.Source, manifests string, snapshot *cluster.Snapshot) agentapi.Cluster {
	c := agentapi.Cluster{From: "manifests in " + manifests, Reachable: true}
	if server, ok := source.(APIServer); ok {
		outages, now := server.Outages()
		c = agentapi.Cluster{From: "API server " + server.Host(), Reachable: !now, Outages: outages}
	}
	if snapshot == nil {
		snapshot = &cluster.Snapshot{Unknown: cluster.AllKinds}
	}
	counts := snapshot.Counts()
	for _, kind := range cluster.AllKinds {
		c.Objects = append(c.Objects, agentapi.ClusterCount{Kind: string(kind), Count: counts[kind], Synced: !snapshot.Unknown.Has(kind)})
	}
	return c
}
