package agent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/natports"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// reconcile makes the kernel hold the desired state. A part that fails does not keep the others from being done.
func (a *Agent) reconcile() {
	a.mu.Lock()
	defer a.mu.Unlock()
	begin := time.Now()
	whole, err := a.reconcileLocked()
	reported := err
	if !whole {
		reported = cmp.Or(err, errSteps)
	}
	a.metrics.reconciled(time.Since(begin), reported)
	switch {
	case err != nil && (a.failure == nil || a.failure.Error() != err.Error()):
		a.log.Error("reconcile", "error", err)
	case err == nil && a.failure != nil:
		a.log.Info("node is ready", "uplink", a.uplink.Name, "mtu", a.current.MTU, "endpoints", a.endpoints.Count(), "nodes", len(a.current.Nodes))
	}
	a.failure = err
	a.endpoints.Update(endpoint.Node{NotReady: err, MTU: a.current.MTU, Own: a.own, Uplink: a.uplink})
	a.updateReadiness()
	a.reports.Update()
}

// errSteps is for the metrics: some steps failed, which are problems, and no reason to reject pods.
var errSteps = errors.New("some steps have failed")

// reconcileLocked starts again when a pod has vanished meanwhile: a failure for a deleted device is no failure of the
// node.
func (a *Agent) reconcileLocked() (whole bool, err error) {
	before := a.current.Problems
	defer func() {
		problem.LogNew(a.log, before, a.current.Problems)
	}()
	for {
		whole, err = a.reconcileOnce()
		if whole && err == nil {
			return true, nil
		}
		gone, dropErr := a.endpoints.DropGone()
		if gone == 0 {
			return false, errors.Join(err, dropErr)
		}
	}
}

// reconcileOnce returns an error if no pods can be added, and whether every step succeeded: a failed step is a
// problem.
func (a *Agent) reconcileOnce() (whole bool, err error) {
	a.known = nil
	if _, err := a.endpoints.DropGone(); err != nil {
		return false, err
	}
	if a.snapshot == nil {
		return false, errNotReady // the cluster is not synced, which does not mean that it is empty
	}
	facts, err := a.facts()
	if err != nil {
		return false, err
	}
	own, _ := facts.Snapshot.Node(a.config.NodeName)
	a.uplink, a.uplinks, a.own = facts.Uplink, facts.AllUplinks(), own
	a.programs.Update(a.uplinks)
	a.leaving.Store(own.Leaving)
	// The index of the tunnel device is part of routes, so the device comes first.
	if facts.Tunnel = a.programs.SyncTunnel(facts); facts.Tunnel.Made {
		if facts.Routes, err = route.Read(node.UsualRoutes * len(facts.Snapshot.Nodes)); err != nil {
			return false, err
		}
	}
	want := node.Desire(facts)
	a.current = want
	if err := a.pool.SetPrefixes(want.PodCIDRs); err != nil {
		return false, fmt.Errorf("set pod ranges: %w", err)
	}
	looked := true
	if avoid, err := netdev.AddressesOfOthers(want.PodCIDRs, facts.Routes); err != nil {
		a.current.Problem("cannot find foreign addresses on this node: %v; a pod may get one of them", err)
	} else {
		a.pool.Avoid(avoid)
		if err := a.expiry.FindLeft(want.PodCIDRs, avoid, a.endpoints.Addresses()); err != nil {
			a.current.Problem("cannot find entries left by an earlier agent: %v; each new pod's addresses are checked instead, and ADD fails where that fails", err)
			looked = false // and is again with the next reconciliation
		}
	}
	whole, err = a.apply(want, facts.Routes)
	if err != nil {
		return false, err
	}
	whole = whole && looked
	// While the snapshot is incomplete, a node that is not in it keeps its former state.
	_, known := a.snapshot.Node(a.config.NodeName)
	if !known && !a.snapshot.Incomplete || len(want.PodCIDRs) == 0 || a.uplink == nil {
		return false, errors.New(strings.Join(want.Problems, "; "))
	}
	a.install()
	if whole {
		a.known = facts.Kept()
	}
	return whole, nil
}

// facts reads the inputs of the desired state. It changes nothing.
func (a *Agent) facts() (node.Facts, error) {
	f := node.Facts{Config: a.config.NodeConfig, LB: a.config.ServiceConfig, NoIPv6: !sysctl.HasIPv6()}
	var err error
	if f.Local, err = netdev.LocalAddresses(); err != nil {
		return f, err
	}
	f.Snapshot, f.Claims = node.OwnFirst(a.snapshot, a.config.NodeName, f.Local)
	own, known := f.Snapshot.Node(a.config.NodeName)
	if a.snapshot.Incomplete || !known {
		found, err := a.datapath.Routes.All()
		if err != nil {
			return f, err
		}
		for _, p := range a.config.NonMasquerade {
			delete(found, p) // of the configuration, and not a node's
		}
		f.Snapshot, f.Recovered = node.Recover(f.Snapshot, a.config.NodeName, found)
		f.Unknown = !known
		own, _ = f.Snapshot.Node(a.config.NodeName)
	}
	if f.Routes, err = route.Read(node.UsualRoutes * len(f.Snapshot.Nodes)); err != nil {
		return f, err
	}
	uplink, err := netdev.FindUplink(value.List(a.config.Uplink)[0], own.Addresses)
	switch {
	case err == nil:
		f.Uplink = &uplink
		if f.Neighbours, err = neigh.List(uplink.Index); err != nil {
			return f, err
		}
	case !errors.Is(err, netdev.ErrNoUplink):
		return f, err
	}
	f.Endpoints = slices.Collect(a.endpoints.All())
	if f.Uplink != nil {
		if f.Uplinks, f.NoUplinks, err = netdev.FindMoreUplinks(uplink, value.List(a.config.Uplink), f.Routes); err != nil {
			return f, err
		}
	}
	if f.Held, err = netdev.Held(own.Addresses); err != nil {
		return f, err
	}
	if server, ok := a.source.(source.APIServer); ok {
		f.APIServer = server.Addresses()
	}
	return f, nil
}

// apply writes the desired state to the kernel. Order matters: tables are filled before programs use them, and
// programs are attached before the stack forwards.
//
// A step that fails is a named problem, and no reason to reject pods: ADD does what its pod needs itself, and returns
// its own errors. The error is for what all pods have to wait for.
func (a *Agent) apply(want node.Desired, routes route.Table) (whole bool, wait error) {
	failed := 0
	step := func(what, means string, err error) {
		for i, e := range parts(err) {
			if i == node.NamedForeign {
				a.current.Problem("%s: and %d more errors, see the log", what, len(parts(err))-i)
				a.log.Error(what, "error", err)
				break
			}
			a.current.Problem("%s: %v; %s; retried at the next change, and once a minute", what, e, means)
		}
		if err != nil {
			failed++
		}
	}
	_, err := a.datapath.Endpoints.Sync(want.Endpoints)
	step("table of pods", "some pods may not be reached", err)
	step("tunnel sources", "pods of other nodes may not be reached through tunnels", a.applyTunnelSources(want.TunnelSources))
	_, err = a.datapath.Routes.Sync(want.Routes)
	step("table of routes", "pods of some nodes may not be reached", err)
	vouch := err == nil
	_, err = a.datapath.Uplinks.Sync(want.Uplinks)
	step("table of uplinks", "pods may not reach external addresses", err)
	step("ports of translation", "connections of the node and of pods may collide", natports.Reserve(a.config.StateDir, a.config.NATPorts, a.config.Masquerade || a.services != nil, a.log))
	a.applyServices(want)
	a.applyPolicies(want)
	wait = a.attachPrograms(want)
	if !errors.Is(wait, errServicesMissing) && !errors.Is(wait, errPoliciesMissing) {
		step("programs", "packets through that device may take another path, or be lost", wait)
		wait = nil
	}
	step("kernel routes", "packets there from the node itself and through the kernel stack may be lost", a.applyKernelRoutes(want.KernelRoutes, routes))
	step("routing rules", "pods on the kernel stack may not reach nodes behind tunnels", a.applyTunnelRules(want))
	step("routing rules of closed pods", "the old rules remain", a.failClosed.Reconcile(a.policies != nil))
	step("tunnel device", "it is unused and remains", a.programs.RemoveTunnel(want))
	a.endpoints.FollowMTU(want.MTU, func(e agentapi.Endpoint, err error) {
		// It concerns this pod only (a program of its own may reject the MTU), and is no reason to reject others.
		a.current.PodProblem(e.Pod, "pod %s has MTU %d instead of %d: %v", e.PodName(), e.MTU, want.MTU, err)
	})
	for _, u := range a.uplinks {
		changed, err := sysctl.EnableForwarding(u.Name, true, true)
		a.logSettings(changed)
		step("forwarding by "+u.Name, "packets that the kernel stack forwards may be lost", err)
	}
	if a.uplink != nil {
		changed, err := sysctl.EnableMulticastResolicit(a.uplink.Name)
		a.logSettings(changed)
		step("neighbour settings", "a node that has moved may be resolved late", err)
		changed, err = sysctl.EnableAddressNotify(a.uplink.Name)
		a.logSettings(changed)
		step("announcement settings", "others may resolve this node late after a move", err)
		step("neighbours", "first packets to other nodes may take longer", neigh.Manage(a.uplink.Index, want.Neighbours))
	}
	if a.vouches = vouch; vouch {
		step("lease", "the kernel resolves neighbours packet by packet", a.datapath.Lease.Renew(leaseTime))
	}
	return failed == 0, wait
}

func (a *Agent) logSettings(changed []sysctl.Change) {
	for _, c := range changed {
		a.log.Info("kernel setting changed", "setting", c.String())
	}
}
