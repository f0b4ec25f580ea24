package agent

import (
	"sync"

	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// vetting checks the addresses of Nodes, for all consumers of snapshots.
type vetting struct {
	vetter cluster.Vetter // only the source's goroutine uses it

	mu       sync.Mutex
	problems []cluster.ObjectProblem
}

// vet gives a snapshot in which nodes have only their own addresses.
func (a *Agent) vet(s *cluster.Snapshot) *cluster.Snapshot {
	v := &a.vetting
	v.vetter.Self, v.vetter.Networks = a.config.NodeName, a.config.NodeCIDRs
	vetted, problems := v.vetter.Vet(s)
	v.mu.Lock()
	before := v.problems
	v.problems = problems
	v.mu.Unlock()
	problem.LogNew(a.log, objectSentences(before), objectSentences(problems))
	return vetted
}

func (v *vetting) current() []cluster.ObjectProblem {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.problems
}

func objectSentences(problems []cluster.ObjectProblem) (all []string) {
	for _, p := range problems {
		all = append(all, p.Text)
	}
	return all
}
