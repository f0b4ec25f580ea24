// Package reconcile makes the kernel hold what the cluster's objects and this node's pods require. It reads facts, has
// package node decide, and applies the result: after changes, and periodically.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/bandwidth"
	"github.com/beeline-cni/beeline/internal/agent/conntrack"
	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agent/programs"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/device/monitor"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/install"
	"github.com/beeline-cni/beeline/internal/ipam"
)

// Intervals of reconciliations.
const (
	// coalesceTime lets a burst of changes become one reconciliation. Where that takes long, in a cluster of thousands of nodes, changes of the
	// kernel wait coalesceShare times as long as the last one took, and coalesceMax at most.
	coalesceTime  = 100 * time.Millisecond
	coalesceShare = 100
	coalesceMax   = 2 * time.Second
	// podsCoalesceTime, podsCoalesceShare and podsCoalesceMax are the same for changes of pods' devices: each ADD and DEL makes some, and does itself
	// what follows from them. A device that goes without a DEL does not wait for these.
	podsCoalesceTime  = time.Second
	podsCoalesceShare = 500
	podsCoalesceMax   = 20 * time.Second
	// resyncInterval bounds how long a change without a notification goes unnoticed.
	resyncInterval = time.Minute
	// parentsInterval bounds how long pods with macvlan devices are open after somebody has detached the programs of their parent.
	parentsInterval = time.Second
	// leaseRenewal and leaseTime: see datapath.Lease. The lease of a stopped agent expires after leaseTime.
	leaseRenewal = 10 * time.Second
	leaseTime    = 30 * time.Second
)

// Options are what a Reconciler depends on.
type Options struct {
	// Config and LB are the configurations of the node and of Services.
	Config   node.Config
	LB       lb.Config
	StateDir string
	// Lock serializes all changes of kernel state: see endpoint.Options.
	Lock      sync.Locker
	Source    cluster.Source
	Datapath  *datapath.Datapath
	Pool      *ipam.Pool
	Endpoints *endpoint.Endpoints
	Programs  *programs.Programs
	// FailClosed isolates pods that lack a program.
	FailClosed *failclosed.Pods
	Limits     *bandwidth.Limits
	Expiry     *conntrack.Expiry
	Installer  *install.Installer
	// Services is nil where the datapath does not translate Services, Policies where it does not enforce NetworkPolicies.
	Services *lb.Services
	Policies *agentpolicy.Policies
	// Wake requests a reconciliation: with new Services or policies, devices or sockets need other programs.
	Wake loop.Signal
	// PoolAddresses gives the addresses of IPPools that pods of other nodes have, by the name of the node. PoolAddressesKnown
	// says that it gives all. PoolAddressesChanged requests to read them again.
	PoolAddresses        func() map[string][]netip.Addr
	PoolAddressesKnown   func() bool
	PoolAddressesChanged <-chan struct{}
	// Reconciled is called after each reconciliation, Applied after the changes of a snapshot are applied, with the time
	// since its first change. Changed is called when the result may be another.
	Reconciled func(took time.Duration, err error)
	Applied    func(took time.Duration)
	Changed    func()
	Beat       *loop.Beat
	Log        *slog.Logger
}

// Reconciler keeps one node in its desired state.
type Reconciler struct {
	Options
	snapshots *source.Handover
	started   time.Time
	// servicesLost says that this agent started with programs of an earlier one whose Service tables do not fit, and
	// policiesLost that it started with such programs and without their policy tables.
	servicesLost, policiesLost bool
	// readiness and leaving are for probes, which must not wait for the lock.
	readiness atomic.Pointer[readiness]
	leaving   atomic.Bool

	// The lock guards the fields below. snapshot is nil until the source has delivered one.
	snapshot *cluster.Snapshot
	// uplink leads to the other nodes; uplinks are all external devices, that one first.
	uplink  *netdev.Uplink
	uplinks []netdev.Uplink
	// vlans are the VLAN devices of IPPools. noVLANs says that this node has none that an agent has made.
	vlans   node.VLANs
	noVLANs bool
	// sources are the routing tables of IPPools.
	sources map[string]int
	// own is this node: as the cluster reports it, or else as recovered from the datapath.
	own     cluster.Node
	current node.Desired
	// known are the facts of the last reconciliation, without the kernel's routes and neighbours; nil if a step
	// failed.
	known *node.Facts
	// failure is the error of the last reconciliation; ErrNotReady until the first one.
	failure error
	// succeeded says that a reconciliation has, since this agent started.
	succeeded bool
	// vouches says that the routes in the datapath are the desired ones.
	vouches  bool
	defences defences
	// notInstalled is why the plugin or its configuration is not installed.
	notInstalled error
}

// ErrNotReady holds until the first reconciliation, which waits for the first snapshot.
var ErrNotReady = errors.New("the agent has not finished starting: it has not read the cluster's nodes yet")

// errClaimsMissing holds at the start until the IPClaims are known, at most claimsPatience: without them the routes to pods of other nodes
// would be removed. The first IPPool of a node that is ready already has no such routes.
var errClaimsMissing = errors.New("the agent has not finished starting: it has not read the cluster's IPClaims yet")

const claimsPatience = 30 * time.Second

// New makes a Reconciler that has not reconciled yet, before the datapath commits.
func New(o Options) (r *Reconciler, err error) {
	r = &Reconciler{Options: o, snapshots: source.NewHandover(), started: time.Now(), failure: ErrNotReady}
	r.updateReadiness()
	if o.Services != nil {
		if r.servicesLost, err = o.Datapath.ServicesLost(); err != nil {
			return nil, err
		}
	}
	if o.Policies != nil {
		r.policiesLost, err = o.Datapath.PoliciesLost()
	}
	return r, err
}

// Update hands over a snapshot. It does not block.
func (r *Reconciler) Update(s *cluster.Snapshot) { r.snapshots.Put(s) }

// Status is the state of the node's network.
type Status struct {
	// Snapshot is nil until the source has delivered one.
	Snapshot *cluster.Snapshot
	// Desired is the desired state, with the problems of making the kernel hold it.
	Desired node.Desired
	// Uplinks are all external devices. Uplink is the one to the other nodes, if there is one.
	Uplink  *netdev.Uplink
	Uplinks []netdev.Uplink
	// NotReady is why the node cannot get pods; nil when it can.
	NotReady error
}

// Status gives the current state. The caller holds the lock, and copies what it needs of Desired.Nodes for longer.
func (r *Reconciler) Status() Status {
	return Status{Snapshot: r.snapshot, Desired: r.current, Uplink: r.uplink, Uplinks: r.uplinks, NotReady: r.unready()}
}

// Run reconciles after changes, and periodically, until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	defer r.closeDefences()
	changes, err := monitor.Watch(ctx, r.Log)
	if err != nil {
		return fmt.Errorf("follow the kernel's network state: %w", err)
	}
	var took time.Duration
	reconcile := func() {
		begin := time.Now()
		r.reconcile()
		took = time.Since(begin)
	}
	// kernel is the time for reconciling changes of the kernel. Changes of the cluster do not wait for it.
	kernel := &loop.Tick{Do: func(time.Time) { reconcile() }}
	later := func() { kernel.Within(min(max(coalesceTime, coalesceShare*took), coalesceMax)) }
	events := make(chan func())
	l := loop.Loop{
		Beat: r.Beat, // it renews the lease every 10 s, so it detects a lock that is never released
		Wake: r.Wake, Work: reconcile, Events: events,
		Ticks: []*loop.Tick{
			kernel,
			{Every: parentsInterval, Do: func(time.Time) { r.keepParents() }},
			{Every: leaseRenewal, Do: func(time.Time) { r.renewLease() }},
			{Every: resyncInterval, Do: func(time.Time) {
				r.forgetVanished()
				reconcile()
			}},
		},
	}
	go forward(ctx, events, r.snapshots.Ready, func(struct{}) {
		s := r.snapshots.Take()
		if s == nil {
			return // an earlier event has taken it
		}
		switch isNew, limits := r.take(s); {
		case isNew && r.reconcileNodes():
			later() // the rest, such as the neighbours
		case isNew:
			reconcile()
		case limits: // as often as whoever may change an annotation likes
			later()
		}
		if !s.Since.IsZero() {
			r.Applied(time.Since(s.Since))
		}
	})
	go forward(ctx, events, r.PoolAddressesChanged, func(struct{}) {
		if !r.reconcileNodes() {
			reconcile()
		}
	})
	go forward(ctx, events, changes, func(c monitor.Change) {
		if c.Node || len(c.GoneHostEnds) > 0 && r.Endpoints.Misses(c.GoneHostEnds) {
			later()
		} else {
			kernel.Within(min(max(podsCoalesceTime, podsCoalesceShare*took), podsCoalesceMax))
		}
	})
	go forward(ctx, events, r.Installer.Watch(ctx), func(struct{}) { later() })
	return l.Run(ctx)
}

// take takes over a snapshot and reports whether anything relevant to the agent has changed, and whether bandwidth limits have.
func (r *Reconciler) take(s *cluster.Snapshot) (isNew, limits bool) {
	r.Lock.Lock()
	defer r.Lock.Unlock()
	before := r.snapshot
	r.snapshot = s
	if before == nil {
		return true, false
	}
	isNew = errors.Is(r.failure, errClaimsMissing) || !cluster.Same(before.Nodes, s.Nodes) || !cluster.Same(before.IPPools, s.IPPools) || before.Incomplete != s.Incomplete
	return isNew, r.Endpoints.BandwidthChanges(before.Pods, s.Pods)
}

// forward makes an event of each value until ctx ends or the channel is closed.
func forward[T any](ctx context.Context, events chan<- func(), from <-chan T, do func(T)) {
	for {
		select {
		case <-ctx.Done():
			return
		case v, ok := <-from:
			if !ok {
				return
			}
			select {
			case <-ctx.Done():
				return
			case events <- func() { do(v) }:
			}
		}
	}
}

// forgetVanished checks what the kernel and the runtime do not notify of: that the programs are still attached, and that
// pods still exist. The next reconciliation attaches what is gone.
func (r *Reconciler) forgetVanished() {
	r.Lock.Lock()
	defer r.Lock.Unlock()
	r.Endpoints.DropForgotten(r.Source, r.snapshot)
	r.Endpoints.DropLost()
	r.Endpoints.ForgetDetached()
	r.Endpoints.RepairMacvlans()
	r.Programs.ForgetDetached()
}

// keepParents restores the programs of the parents of macvlan devices, or closes the pods.
func (r *Reconciler) keepParents() {
	r.Lock.Lock()
	defer r.Lock.Unlock()
	r.Endpoints.CloseMacvlans(r.Programs.RestoreParents())
}

// renewLease renews the lease on the link-layer addresses in the routes, unless the last reconciliation failed to
// write them.
func (r *Reconciler) renewLease() {
	r.Lock.Lock()
	defer r.Lock.Unlock()
	if r.failure != nil || !r.vouches {
		return
	}
	if err := r.Datapath.Lease.Renew(leaseTime); err != nil {
		r.Log.Error("lease not renewed: the kernel resolves neighbours packet by packet", "error", err)
	}
}
