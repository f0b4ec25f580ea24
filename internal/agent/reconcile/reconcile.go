package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
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
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// reconcile makes the kernel hold the desired state. A part that fails does not keep the others from being done.
func (r *Reconciler) reconcile() {
	r.Lock.Lock()
	defer r.Lock.Unlock()
	begin := time.Now()
	whole, err := r.reconcileLocked()
	reported := err
	if !whole {
		reported = cmp.Or(err, errSteps)
	}
	r.Reconciled(time.Since(begin), reported)
	switch {
	case err != nil && (r.failure == nil || r.failure.Error() != err.Error()):
		r.Log.Error("reconcile", "error", err)
	case err == nil && r.failure != nil:
		r.Log.Info("node is ready", "uplink", r.uplink.Name, "mtu", r.current.MTU, "endpoints", r.Endpoints.Count(), "nodes", len(r.current.Nodes))
	}
	r.failure = err
	r.succeeded = r.succeeded || err == nil
	r.updateEndpoints()
	r.updateReadiness()
	r.Changed()
}

// updateEndpoints says what endpoints need to know of the node.
func (r *Reconciler) updateEndpoints() {
	var pools []*cluster.IPPool
	if r.snapshot != nil {
		pools = r.snapshot.IPPools
	}
	uplinks, vlans, sources, tunnels := r.uplinks, r.vlans, r.sources, r.current.TunnelRules
	r.Endpoints.Update(endpoint.Node{
		NotReady: r.failure, MTU: r.current.MTU, Own: r.own, Uplink: r.uplink,
		PoolUplink: func(pool string) (netdev.Uplink, error) { return node.PoolUplink(pools, uplinks, vlans, pool) },
		RouteSource: func(pool string, a netip.Addr) error {
			if table := sources[pool]; table != 0 || tunnels {
				return route.AddToSource(a, table, tunnels)
			}
			return nil
		},
		IPPool: func(pool string) *cluster.IPPool {
			at := slices.IndexFunc(pools, func(p *cluster.IPPool) bool { return p.Name == pool })
			if at < 0 {
				return nil
			}
			return pools[at]
		},
	})
}

// errSteps is for the metrics: some steps failed, which are problems, and no reason to reject pods.
var errSteps = errors.New("some steps have failed")

// reconcileLocked starts again when a pod has vanished meanwhile: a failure for a deleted device is no failure of the
// node.
func (r *Reconciler) reconcileLocked() (whole bool, err error) {
	before := r.current.Problems
	defer func() {
		problem.LogNew(r.Log, before, r.current.Problems)
	}()
	for {
		whole, err = r.reconcileOnce()
		if whole && err == nil {
			return true, nil
		}
		gone, dropErr := r.Endpoints.DropGone()
		if gone == 0 {
			return false, errors.Join(err, dropErr)
		}
	}
}

// reconcileOnce returns an error if no pods can be added, and whether every step succeeded: a failed step is a
// problem.
func (r *Reconciler) reconcileOnce() (whole bool, err error) {
	r.known = nil
	if _, err := r.Endpoints.DropGone(); err != nil {
		return false, err
	}
	if r.snapshot == nil {
		return false, ErrNotReady // the cluster is not synced, which does not mean that it is empty
	}
	// An incomplete snapshot has no pools: the routes in the datapath are recovered instead.
	if !r.succeeded && !r.snapshot.Incomplete && time.Since(r.started) < claimsPatience && !r.PoolAddressesKnown() {
		return false, errClaimsMissing
	}
	notLimited := map[agentapi.PodRef]error{}
	r.Endpoints.FollowBandwidth(r.snapshot.Pods, func(e agentapi.Endpoint, err error) { notLimited[e.Pod] = err })
	facts, err := r.facts()
	if err != nil {
		return false, err
	}
	errVLANs := r.syncVLANs(&facts)
	own, _ := facts.Snapshot.Node(r.Config.NodeName)
	r.vlans = facts.VLANs
	r.uplink, r.uplinks, r.own = facts.Uplink, facts.AllUplinks(), own
	r.Programs.Update(r.uplinks)
	r.leaving.Store(own.Leaving)
	// The index of the tunnel device is part of routes, so the device comes first.
	if facts.Tunnel = r.Programs.SyncTunnel(facts); facts.Tunnel.Made {
		if facts.Routes, err = route.Read(node.UsualRoutes * len(facts.Snapshot.Nodes)); err != nil {
			return false, err
		}
	}
	facts.Encryption = r.Programs.SyncEncryption(facts)
	want := node.Desire(facts)
	r.current = want
	if err := r.Pool.SetPrefixes(want.PodCIDRs); err != nil {
		return false, fmt.Errorf("set pod ranges: %w", err)
	}
	for pod, err := range notLimited {
		r.current.PodProblem(pod, "bandwidth of pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	if errVLANs != nil {
		r.current.Problem("VLAN devices of IPPools: %v", errVLANs)
	}
	looked := errVLANs == nil
	if avoid, err := netdev.AddressesOfOthers(want.PodCIDRs, facts.Routes); err != nil {
		r.current.Problem("cannot find foreign addresses on this node: %v; a pod may get one of them", err)
	} else {
		r.Pool.Avoid(avoid)
		if err := r.Expiry.FindLeft(want.PodCIDRs, avoid, r.Endpoints.Addresses()); err != nil {
			r.current.Problem("cannot find entries left by an earlier agent: %v; each new pod's addresses are checked instead, and ADD fails where that fails", err)
			looked = false // and is again with the next reconciliation
		}
	}
	whole, err = r.apply(want, facts.Routes)
	if err != nil {
		return false, err
	}
	whole = whole && looked
	// While the snapshot is incomplete, a node that is not in it keeps its former state.
	_, known := r.snapshot.Node(r.Config.NodeName)
	if !known && !r.snapshot.Incomplete || len(want.PodCIDRs) == 0 || r.uplink == nil {
		return false, errors.New(strings.Join(want.Problems, "; "))
	}
	r.install()
	if whole {
		r.known = facts.Kept()
	}
	return whole, nil
}

// facts reads the inputs of the desired state. It changes nothing.
func (r *Reconciler) facts() (node.Facts, error) {
	f := node.Facts{Config: r.Config, LB: r.LB, NoIPv6: !sysctl.HasIPv6()}
	var err error
	if f.Local, err = netdev.LocalAddresses(); err != nil {
		return f, err
	}
	f.Snapshot, f.Claims = r.nodes(r.snapshot, f.Local)
	f.IPPools = r.snapshot.IPPools
	own, known := f.Snapshot.Node(r.Config.NodeName)
	if r.snapshot.Incomplete || !known {
		found, err := r.Datapath.Routes.All()
		if err != nil {
			return f, err
		}
		for _, p := range slices.Concat(r.Config.NonMasquerade, r.Config.EncryptedCIDRs) {
			delete(found, p) // of the configuration, and not a node's
		}
		f.Snapshot, f.Recovered = node.Recover(f.Snapshot, r.Config.NodeName, found)
		f.Unknown = !known
		own, _ = f.Snapshot.Node(r.Config.NodeName)
	}
	if f.Routes, err = route.Read(node.UsualRoutes * len(f.Snapshot.Nodes)); err != nil {
		return f, err
	}
	uplink, err := netdev.FindUplink(value.List(r.Config.Uplink)[0], own.Addresses)
	switch {
	case err == nil:
		f.Uplink = &uplink
		if f.Neighbours, err = neigh.List(uplink.Index); err != nil {
			return f, err
		}
	case errors.Is(err, netdev.ErrNoUplink):
		f.NoUplinks = []error{err}
	default:
		return f, err
	}
	f.Endpoints = slices.Collect(r.Endpoints.All())
	if deleted := node.OfDeletedPools(f.Endpoints, f.IPPools); len(deleted) > 0 {
		if f.Answers, err = answersFor(deleted); err != nil {
			return f, err
		}
	}
	if f.Uplink != nil {
		if f.Uplinks, f.NoUplinks, err = netdev.FindMoreUplinks(uplink, value.List(r.Config.Uplink), f.Routes); err != nil {
			return f, err
		}
	}
	if f.Held, err = netdev.Held(own.Addresses); err != nil {
		return f, err
	}
	if server, ok := r.Source.(source.APIServer); ok {
		f.APIServer = server.Addresses()
	}
	return f, nil
}

// answersFor gives the devices on which the kernel answers for addresses.
func answersFor(addresses []netip.Addr) (map[netip.Addr]int, error) {
	all, err := neigh.Proxies()
	maps.DeleteFunc(all, func(a netip.Addr, _ int) bool { return !slices.Contains(addresses, a) })
	return all, err
}

// apply writes the desired state to the kernel. Order matters: tables are filled before programs use them, and
// programs are attached before the stack forwards.
//
// A step that fails is a named problem, and no reason to reject pods: ADD does what its pod needs itself, and returns
// its own errors. The error is for what all pods have to wait for.
func (r *Reconciler) apply(want node.Desired, routes route.Table) (whole bool, wait error) {
	failed := 0
	step := func(what, means string, err error) {
		for i, e := range parts(err) {
			if i == node.NamedForeign {
				r.current.Problem("%s: and %d more errors, see the log", what, len(parts(err))-i)
				r.Log.Error(what, "error", err)
				break
			}
			r.current.Problem("%s: %v; %s; retried at the next change, and once a minute", what, e, means)
		}
		if err != nil {
			failed++
		}
	}
	_, err := r.Datapath.Macvlans.Sync(want.Macvlans)
	step("table of macvlan devices", "pods with macvlan devices may not be reached", err)
	step("bandwidth limits", "these pods or uplinks are not limited", r.Limits.Sync(slices.Collect(r.Endpoints.All()), r.uplinks))
	_, err = r.Datapath.Endpoints.Sync(want.Endpoints)
	step("table of pods", "some pods may not be reached", err)
	step("tunnel sources", "pods of other nodes may not be reached through tunnels", r.applyTunnelSources(want.TunnelSources))
	_, err = r.Datapath.Routes.Sync(want.Routes)
	step("table of routes", "pods of some nodes may not be reached", err)
	vouch := err == nil
	_, err = r.Datapath.Uplinks.Sync(want.Uplinks)
	step("table of uplinks", "pods may not reach external addresses", err)
	step("ports of translation", "connections of the node and of pods may collide", natports.Reserve(r.StateDir, r.LB.NATPorts, r.Config.Masquerade || r.Services != nil, r.Log))
	r.applyServices(want)
	r.applyPolicies(want)
	wait = r.attachPrograms(want)
	if !errors.Is(wait, errServicesMissing) && !errors.Is(wait, errPoliciesMissing) {
		step("programs", "packets through that device may take another path, or be lost", wait)
		wait = nil
	}
	if wait == nil {
		step("VLAN devices", "pods of their IPPools do not start", r.openVLANs())
	}
	step("kernel routes", "packets there from the node itself and through the kernel stack may be lost", r.applyKernelRoutes(want.KernelRoutes, routes))
	step("routing rules", "pods on the kernel stack may not reach nodes behind tunnels", r.applyTunnelRules(want))
	step("routes of IPPools", "pods of these pools may take other routes of this node", r.applySources(want, routes))
	step("routing rules of closed pods", "the old rules remain", r.FailClosed.Reconcile())
	step("device that encrypts", "it is unused and remains", r.Programs.RemoveEncryption(want))
	step("tunnel device", "it is unused and remains", r.Programs.RemoveTunnel(want))
	r.Endpoints.FollowMTU(want.MTU, func(e agentapi.Endpoint, err error) {
		// It concerns this pod only (a program of its own may reject the MTU), and is no reason to reject others.
		r.current.PodProblem(e.Pod, "pod %s has MTU %d instead of %d: %v", e.PodName(), e.MTU, want.MTU, err)
	})
	for _, u := range r.uplinks {
		changed, err := sysctl.EnableForwarding(u.Name, true, true)
		r.logSettings(changed)
		step("forwarding by "+u.Name, "packets that the kernel stack forwards may be lost", err)
	}
	if r.uplink != nil {
		changed, err := sysctl.EnableMulticastResolicit(r.uplink.Name)
		r.logSettings(changed)
		step("neighbour settings", "a node that has moved may be resolved late", err)
		changed, err = sysctl.EnableAddressNotify(r.uplink.Name)
		r.logSettings(changed)
		step("announcement settings", "others may resolve this node late after a move", err)
		step("neighbours", "first packets to other nodes may take longer", neigh.Manage(r.uplink.Index, want.Neighbours))
	}
	step("answers for pods", "other hosts may not reach pods with addresses of IPPools", r.applyProxies(want.Proxies))
	if r.vouches = vouch; vouch {
		step("lease", "the kernel resolves neighbours packet by packet", r.Datapath.Lease.Renew(leaseTime))
	}
	return failed == 0, wait
}

// applyProxies makes the kernel answer for the addresses of IPPools that pods of this node have, and the agent where the kernel does not.
func (r *Reconciler) applyProxies(wanted map[int][]netip.Addr) error {
	var errs []error
	for _, u := range r.uplinks {
		if len(wanted[u.Index]) > 0 {
			changed, err := sysctl.EnableProxy(u.Name)
			r.logSettings(changed)
			errs = append(errs, err)
		}
	}
	_, err := neigh.Proxy(wanted)
	if len(r.snapshot.IPPools)+len(wanted) > 0 { // an ADD may add an answer at any time
		r.defences.set(r.uplinks, r.Log)
	} else {
		r.defences.set(nil, r.Log)
	}
	return errors.Join(append(errs, err)...)
}

func (r *Reconciler) closeDefences() {
	r.Lock.Lock()
	defer r.Lock.Unlock()
	r.defences.close()
}

func (r *Reconciler) logSettings(changed []sysctl.Change) {
	for _, c := range changed {
		r.Log.Info("kernel setting changed", "setting", c.String())
	}
}
