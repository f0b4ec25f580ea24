package reconcile

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// reconcileNodes applies the nodes of a new snapshot if only the routes of some other nodes change. It returns false
// if a reconciliation is needed; then it may have done a part.
func (r *Reconciler) reconcileNodes() (done bool) {
	r.Lock.Lock()
	defer r.Lock.Unlock()
	if r.known == nil || r.failure != nil || !r.vouches || r.snapshot.Incomplete || !cluster.Same(r.known.IPPools, r.snapshot.IPPools) {
		return false
	}
	now := *r.known
	now.Snapshot, now.Claims = r.nodes(&cluster.Snapshot{Nodes: r.snapshot.Nodes}, now.Local)
	now.Endpoints = slices.Collect(r.Endpoints.All())
	device := now.Encryption.Index
	now.Encryption = r.Programs.SyncEncryption(now) // before the routes: a peer of a changed key, or of a new node
	if now.Encryption.Index != device {
		return false
	}
	step, ok := r.known.StepTo(now, r.current)
	if !ok {
		return false
	}
	if err := r.applyNodes(step); err != nil {
		r.Log.Info("routes of changed nodes failed, reconciling all", "error", err)
		return false
	}
	r.known = &now
	r.current.Take(step)
	r.current.Encryption = now.Encryption
	return true
}

// nodes are those of a snapshot, as this node sees them: see node.OwnFirst and node.WithPoolAddresses.
func (r *Reconciler) nodes(s *cluster.Snapshot, local []netip.Addr) (_ *cluster.Snapshot, claims []string) {
	s, claims = node.OwnFirst(s, r.Config.NodeName, local, r.Endpoints.Addresses())
	with := *s
	with.Nodes = node.WithPoolAddresses(s.Nodes, r.Config.NodeName, r.PoolAddresses())
	return &with, claims
}

// applyNodes does so. As in apply, the table is written before the routes of the kernel.
func (r *Reconciler) applyNodes(step node.Step) error {
	if err := r.Datapath.Routes.Change(step.Set, step.Del, step.Nested); err != nil {
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
