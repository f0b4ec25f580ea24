package agent

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/status"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/apiserver"
)

// newSource makes the configured source of the cluster's state: a directory of manifests if one is given, else an API
// server, which also gets reports.
func newSource(config Config, version string, log *slog.Logger) (cluster.Source, status.Reporter, error) {
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

// remote is a Source that may be unreachable.
type remote interface {
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

// cluster describes the source of the cluster's state, and counts its objects.
func (a *Agent) cluster() agentapi.Cluster {
	c := agentapi.Cluster{From: "manifests in " + a.config.Manifests, Reachable: true}
	if server, ok := a.source.(remote); ok {
		outages, now := server.Outages()
		c = agentapi.Cluster{From: "API server " + server.Host(), Reachable: !now, Outages: outages}
	}
	snapshot := a.snapshot
	if snapshot == nil {
		snapshot = &cluster.Snapshot{Unknown: cluster.AllKinds}
	}
	counts := snapshot.Counts()
	for _, kind := range cluster.AllKinds {
		c.Objects = append(c.Objects, agentapi.ClusterCount{Kind: string(kind), Count: counts[kind], Synced: !snapshot.Unknown.Has(kind)})
	}
	return c
}

// take takes over a snapshot and reports whether anything relevant to the agent has changed.
func (a *Agent) take(s *cluster.Snapshot) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.snapshot
	a.snapshot = s
	return before == nil || !cluster.Same(before.Nodes, s.Nodes) || before.Incomplete != s.Incomplete
}

// handover holds the latest snapshot until the main loop takes it: the source and Services do not wait for a
// reconciliation.
type handover struct {
	ready loop.Signal

	mu     sync.Mutex
	latest *cluster.Snapshot
}

// put replaces a waiting snapshot, and keeps its time: the change that it brought is not applied yet.
func (h *handover) put(s *cluster.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest != nil {
		if since := h.latest.Since; !since.IsZero() && (s.Since.IsZero() || since.Before(s.Since)) {
			both := *s
			both.Since, s = since, &both
		}
	}
	h.latest = s
	h.ready.Set()
}

// take gives the waiting snapshot; nil if there is none.
func (h *handover) take() *cluster.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.latest
	h.latest = nil
	return s
}

// applied records that the changes of a snapshot are applied.
func (a *Agent) applied(s *cluster.Snapshot) {
	if !s.Since.IsZero() {
		a.metrics.changes.Observe(time.Since(s.Since).Seconds())
	}
}
