package reconcile

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// applyKernelRoutes sets the routes of the kernel stack. Routes of other networks in their way are a problem of their
// own, which names the owner, and no error.
func (r *Reconciler) applyKernelRoutes(routes []route.Route, present route.Table) error {
	_, err := present.Sync(routes)
	if text := node.ForeignProblem(present.Foreign(node.RangesOf(routes)), r.uplinks); text != "" {
		r.current.Problem("%s", text)
	}
	isForeign := func(err error) bool { return errors.Is(err, route.ErrForeign) }
	return errors.Join(slices.DeleteFunc(slices.Clone(parts(err)), isForeign)...)
}

// applyTunnelSources writes this node's tunnel endpoints to the datapath.
func (r *Reconciler) applyTunnelSources(sources []netip.Addr) error {
	var ipv4, ipv6 netip.Addr
	for _, s := range sources {
		if s.Is4() {
			ipv4 = s
		} else {
			ipv6 = s
		}
	}
	return r.Datapath.Tunnel.SetSources(ipv4, ipv6)
}

// applyTunnelRules routes packets from pods to tunnelled nodes through the tunnel also where the kernel stack
// forwards them.
func (r *Reconciler) applyTunnelRules(want node.Desired) error {
	var sources []netip.Prefix
	if want.TunnelRules {
		sources = want.PodCIDRs
	}
	_, err := route.SyncTunnelRules(sources)
	return err
}

// applySources routes what pods of IPPools send by the routers of their pools. Without the pools (an incomplete snapshot) it changes nothing.
func (r *Reconciler) applySources(want node.Desired, present route.Table) error {
	if r.snapshot.Incomplete {
		return nil
	}
	sources := make([]route.Source, len(want.Sources))
	for i, s := range want.Sources {
		sources[i] = s.Source
	}
	tables, _, err := route.SyncSources(sources, want.TunnelRules, present)
	r.sources = map[string]int{}
	for i, table := range tables {
		r.sources[want.Sources[i].Pool] = table
	}
	return err
}

// parts are the joined errors.
func parts(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the outermost one only: what it wraps is one error
		return joined.Unwrap()
	}
	return []error{err}
}
