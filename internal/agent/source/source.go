// Package source connects the agent to the source of the cluster's state.
package source

import (
	"log/slog"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/agent/status"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/apiserver"
)

// Config says where the cluster's state is.
type Config struct {
	// Manifests is a directory; Kubeconfig and APIServer are for an API server.
	Manifests, Kubeconfig, APIServer string
	NodeName                         string
}

// New makes the configured source of the cluster's state: a directory of manifests if one is given, else an API
// server, which also gets reports.
func New(config Config, version string, log *slog.Logger) (cluster.Source, status.Reporter, error) {
	if config.Manifests != "" {
		return cluster.NewManifests(config.Manifests, log), nil, nil
	}
	source, reporter, err := apiserver.New(apiserver.Config{
		Kubeconfig: config.Kubeconfig,
		Server:     config.APIServer,
		NodeName:   config.NodeName,
		UserAgent:  "beeline/" + version,
	}, log)
	if err != nil {
		return nil, nil, err
	}
	return source, reporter, nil
}

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
