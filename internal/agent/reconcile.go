package agent

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
)

// reconcile makes the kernel hold what the cluster and the pods ask for. A part that fails does not keep
// the others from being done.
func (a *Agent) reconcile() {
	a.mu.Lock()
	defer a.mu.Unlock()
	begin := time.Now()
	whole, err := a.reconcileLocked()
	told := err
	if !whole {
		told = cmp.Or(err, errSteps)
	}
	a.metrics.reconciled(time.Since(begin), told)
	switch {
	case err != nil && (a.failure == nil || a.failure.Error() != err.Error()):
		a.log.Error("reconcile", "error", err)
	case err == nil && a.failure != nil:
		a.log.Info("node is ready", "uplink", a.uplink.Name, "mtu", a.current.MTU, "endpoints", len(a.endpoints), "nodes", len(a.current.Nodes))
	}
	a.failure = err
	a.updateReadiness()
	a.reports.Update()
}

// errSteps is for the metrics: some steps have failed, which are problems, and no reason to refuse pods.
var errSteps = errors.New("some steps have failed")

// reconcileLocked goes over everything again when a pod has vanished in the middle: what cannot be done for a
// device that is gone is no failure of the node.
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
		gone, dropErr := a.dropGoneEndpoints()
		if gone == 0 {
			return false, errors.Join(err, dropErr)
		}
	}
}

// reconcileOnce gives an error if no pods can be added, and whether every step has succeeded: what has not is a problem.
func (a *Agent) reconcileOnce() (whole bool, err error) {
	a.known = nil
	if _, err := a.dropGoneEndpoints(); err != nil {
		return false, err
	}
	if a.snapshot == nil {
		return false, errNotReady // nothing is known of the cluster, which is not to know that it is empty
	}
	facts, err := a.facts()
	if err != nil {
		return false, err
	}
	own, _ := facts.Snapshot.Node(a.config.NodeName)
	a.uplink, a.uplinks, a.own = facts.Uplink, facts.AllUplinks(), own
	a.leaving.Store(own.Leaving)
	// The index of the tunnel device is part of routes, so the device comes first.
	if facts.Tunnel = a.syncTunnel(facts); facts.Tunnel.Made {
		if facts.Routes, err = route.Read(node.UsualRoutes * len(facts.Snapshot.Nodes)); err != nil {
			return false, err
		}
	}
	want := node.Desire(facts)
	a.current = want
	if _, err := a.pool.SetPrefixes(want.PodCIDRs); err != nil {
		return false, fmt.Errorf("set pod ranges: %w", err)
	}
	looked := true
	if avoid, err := netdev.AddressesOfOthers(want.PodCIDRs, facts.Routes); err != nil {
		a.current.Problem("addresses that somebody else has on this node cannot be looked for: %v; a pod may get one of them", err)
	} else {
		a.pool.Avoid(avoid)
		if err := a.expiry.FindLeft(want.PodCIDRs, avoid, a.podAddresses()); err != nil {
			a.current.Problem("what pods of an earlier agent have left cannot be looked for: %v; each new pod's addresses are looked for instead, and a pod is refused where that fails", err)
			looked = false // and is again with the next reconciliation
		}
	}
	whole, err = a.apply(want, facts.Routes)
	if err != nil {
		return false, err
	}
	whole = whole && looked
	// A node that is not told of while not everything is known goes on as the node that it was.
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

// facts reads what the desired state depends on. It changes nothing.
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
			delete(found, p) // of the configuration, and no node's
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
	for _, e := range a.endpoints {
		f.Endpoints = append(f.Endpoints, e)
	}
	if f.Uplink != nil {
		if f.Uplinks, f.NoUplinks, err = netdev.FindMoreUplinks(uplink, value.List(a.config.Uplink), f.Routes); err != nil {
			return f, err
		}
	}
	if f.Held, err = netdev.Held(own.Addresses); err != nil {
		return f, err
	}
	if server, ok := a.source.(remote); ok {
		f.APIServer = server.Addresses()
	}
	return f, nil
}

// apply carries the desired state into the kernel. Order matters: tables are filled before programs use
// them, and programs are in place before the stack forwards.
//
// A step that fails is a problem with a name, and no reason to refuse pods: what a new pod needs itself, its ADD does, and says why it cannot.
// The error is for what all pods have to wait for.
func (a *Agent) apply(want node.Desired, routes route.Table) (whole bool, wait error) {
	failed := 0
	step := func(what, means string, err error) {
		for i, e := range parts(err) {
			if i == node.NamedForeign {
				a.current.Problem("%s: and %d more errors, see the log", what, len(parts(err))-i)
				a.log.Error(what, "error", err)
				break
			}
			a.current.Problem("%s: %v; %s; it is tried again at the next change, and once a minute", what, e, means)
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
	step("table of uplinks", "pods may not reach the world", err)
	step("ports of translation", "connections of the node and of pods may meet", a.reservePorts())
	a.applyServices(want)
	a.applyPolicies(want)
	wait = a.attachPrograms(want)
	if !errors.Is(wait, errServicesMissing) && !errors.Is(wait, errPoliciesMissing) {
		step("programs", "what goes through that device may go another way, or be lost", wait)
		wait = nil
	}
	a.applyKernelRoutes(want.KernelRoutes, routes)
	step("routing rules", "pods that go through the node's stack may not reach nodes behind tunnels", a.applyTunnelRules(want))
	step("routing rules of closed pods", "they stay as they were", a.failClosed.Reconcile(a.policies != nil))
	step("tunnel device", "it is of no use any more and stays", a.removeTunnel(want))
	for name, e := range a.endpoints {
		if err := a.followMTU(name, e, want.MTU); err != nil {
			// The pod's own affair (a program of its own may refuse the MTU), and no reason to refuse others.
			a.current.PodProblem(e.Pod, "pod %s has MTU %d instead of %d: %v", e.PodName(), e.MTU, want.MTU, err)
		}
	}
	for _, u := range a.uplinks {
		changed, err := sysctl.EnableForwarding(u.Name, true, true)
		a.logSettings(changed)
		step("forwarding by "+u.Name, "what the node's stack forwards may be lost", err)
	}
	if a.uplink != nil {
		changed, err := sysctl.EnableMulticastResolicit(a.uplink.Name)
		a.logSettings(changed)
		step("neighbour settings", "a node that has moved may be found late", err)
		changed, err = sysctl.EnableAddressNotify(a.uplink.Name)
		a.logSettings(changed)
		step("announcement settings", "others may find this node late when it has moved", err)
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

// attach puts the current programs on every device that needs them and takes them off the others. It does
// so once for each device, until forgetDetached notices that somebody else has taken them off.
func (a *Agent) attach(want node.Desired) error {
	var errs []error
	wanted := map[string]bool{}
	attach := func(name string, index int, put func(name string, index int) error) {
		wanted[name] = true
		if a.attached[name] == index {
			return
		}
		if err := put(name, index); err != nil {
			errs = append(errs, err)
			return
		}
		a.attached[name] = index
	}
	a.attachPods(attach)
	if a.datapath.SetStackSends(a.stackSends()) {
		for _, u := range a.uplinks {
			delete(a.attached, u.Name)
		}
	}
	for _, u := range a.uplinks {
		attach(u.Name, u.Index, a.attachUplink)
	}
	if want.Tunnel.Index != 0 {
		attach(vxlan.Name, want.Tunnel.Index, a.datapath.AttachTunnel)
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // nothing is taken off while something is not yet on
	}
	present, err := a.datapath.Attachments()
	if err != nil {
		return err
	}
	for _, p := range present {
		// Those of the tunnel device stay for as long as it is there, wanted or not: without them it would bring in
		// what anybody sends. removeTunnel takes them off.
		if !wanted[p.Device] && p.Device != vxlan.Name {
			errs = append(errs, a.datapath.Detach(p.Device))
			delete(a.attached, p.Device)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return a.datapath.Commit()
}

// attachPods does so with pods' devices, each by a call of attach. A pod that lacks a program which its policies need is closed by a
// pass of policies.
func (a *Agent) attachPods(attach func(name string, index int, put func(name string, index int) error)) {
	incomplete := false
	for name, e := range a.endpoints {
		attach(name, e.HostIfIndex, func(string, int) error {
			lacks, err := a.failClosed.Adopt(failClosedPod(e))
			incomplete = incomplete || lacks
			return err
		})
	}
	a.failClosed.AdoptionDone()
	if incomplete && a.policies != nil {
		_ = a.policies.Pass() // what failed is in the outcome
	}
}

// attachUplink puts the programs on a device to the world. One whose driver cannot forward is left to tc.
func (a *Agent) attachUplink(name string, index int) error {
	if err := a.datapath.AttachUplink(name, index); err != nil {
		return err
	}
	got, err := a.datapath.Accelerate(name, index)
	if err != nil && got.Place == "" {
		return err
	}
	a.accelerated[name] = acceleration{got, err}
	return nil
}

// followMTU gives an existing pod the MTU of today's uplink.
func (a *Agent) followMTU(name string, e agentapi.Endpoint, mtu int) error {
	if mtu == 0 || e.MTU == mtu {
		return nil
	}
	if err := device.Pods.SetMTU(e.HostIfIndex, e.Netns, mtu); err != nil {
		return err
	}
	a.log.Info("pod has a new MTU", "pod", e.PodName(), "old", e.MTU, "new", mtu)
	e.MTU = mtu
	a.endpoints[name] = e
	return a.store.save(e)
}

func failClosedPod(e agentapi.Endpoint) failclosed.Pod {
	return failclosed.Pod{Device: e.HostDevice, Index: e.HostIfIndex, Addresses: e.Addresses}
}
