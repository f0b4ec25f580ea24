package agent

import (
	"errors"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// reconcileNodes applies the nodes of a new snapshot if only the routes of some other nodes change. It returns false
// if a reconciliation is needed; then it may have done a part.
func (a *Agent) reconcileNodes() (done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil || a.failure != nil || !a.vouches || a.snapshot.Incomplete {
		return false
	}
	now := *a.known
	now.Snapshot, now.Claims = node.OwnFirst(&cluster.Snapshot{Nodes: a.snapshot.Nodes}, a.config.NodeName, now.Local)
	now.Endpoints = slices.Collect(a.endpoints.All())
	step, ok := a.known.StepTo(now, a.current)
	if !ok {
		return false
	}
	if err := a.applyNodes(step); err != nil {
		a.log.Info("routes of changed nodes failed, reconciling all", "error", err)
		return false
	}
	a.known = &now
	a.current.Take(step)
	return true
}

// applyNodes does so. As in apply, the table is written before the routes of the kernel.
func (a *Agent) applyNodes(step node.Step) error {
	if err := a.datapath.Routes.Change(step.Set, step.Del, step.Nested); err != nil {
		return err
	}
	var errs []error
	for _, r := range step.Add {
		errs = append(errs, route.Add(r))
	}
	for _, r := range step.Over {
		errs = append(errs, route.Delete(r))
	}
	return errors.Join(errs...)
}
