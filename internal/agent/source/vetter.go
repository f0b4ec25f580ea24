package source

import (
	"log/slog"
	"net/netip"
	"sync"

	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// Vetter checks the addresses of Nodes, for all consumers of snapshots.
type Vetter struct {
	vetter cluster.Vetter // only the source's goroutine uses it
	log    *slog.Logger

	mu       sync.Mutex
	problems []cluster.ObjectProblem
}

// NewVetter makes the Vetter of a node: others may only have addresses within networks.
func NewVetter(self string, networks []netip.Prefix, log *slog.Logger) *Vetter {
	return &Vetter{vetter: cluster.Vetter{Self: self, Networks: networks}, log: log}
}

// Vet gives a snapshot in which nodes have only their own addresses.
func (v *Vetter) Vet(s *cluster.Snapshot) *cluster.Snapshot {
	vetted, problems := v.vetter.Vet(s)
	v.mu.Lock()
	before := v.problems
	v.problems = problems
	v.mu.Unlock()
	problem.LogNew(v.log, problem.Texts(before), problem.Texts(problems))
	return vetted
}

// Problems are those of the last snapshot.
func (v *Vetter) Problems() []cluster.ObjectProblem {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.problems
}
