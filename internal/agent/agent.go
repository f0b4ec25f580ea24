// Package agent runs the network of one node: it computes the desired state from the cluster's objects and
// this node's pods, and applies it to the kernel. The kernel forwards without the agent.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agent/conntrack"
	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	agentflow "github.com/beeline-cni/beeline/internal/agent/flow"
	"github.com/beeline-cni/beeline/internal/agent/httpserve"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/mode"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agent/programs"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/agent/status"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/agentapi/server"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/device/monitor"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/install"
	"github.com/beeline-cni/beeline/internal/ipam"
)

// Intervals of the agent.
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
	// leaseRenewal and leaseTime: see datapath.Lease. The lease of a stopped agent expires after leaseTime.
	leaseRenewal = 10 * time.Second
	leaseTime    = 30 * time.Second
)

// Agent is the agent of one node. It implements agentapi.Service.
type Agent struct {
	config  Config
	version string
	log     *slog.Logger
	source  cluster.Source
	// reporter is nil without an API server.
	reporter status.Reporter
	reports  *status.Reports
	metrics  *metrics
	started  time.Time

	datapath *datapath.Datapath
	// services is nil where the datapath does not translate Services.
	services *lb.Services
	// servicesStatus is the Status of services; nil without.
	servicesStatus func() lb.Outcome
	// policies is nil where the datapath does not enforce NetworkPolicies.
	policies *agentpolicy.Policies
	// policiesLost says that this agent started with programs of an earlier one, and without its policy tables.
	policiesLost bool
	// servicesLost says that this agent started with programs of an earlier one whose Service tables do not fit.
	servicesLost bool
	// servicesChanged has capacity 1: with the new Services or policies, devices or sockets need other programs.
	servicesChanged loop.Signal
	expiry          *conntrack.Expiry
	vetter          *source.Vetter
	tables          *status.Tables
	flows           *agentflow.Flows
	failClosed      *failclosed.Pods
	modes           mode.Modes
	features        []agentapi.Feature
	// beats are those of the loops, for /healthz; readiness and leaving are for probes, which must not wait for mu.
	beats     loop.Beats
	readiness atomic.Pointer[readiness]
	leaving   atomic.Bool
	mapCounts status.MapCounts

	// mu guards the fields below and serializes all changes of kernel state.
	mu sync.Mutex
	// snapshot is nil until the source has delivered one.
	snapshot *cluster.Snapshot
	pool     *ipam.Pool
	// endpoints share mu.
	endpoints *endpoint.Endpoints
	programs  *programs.Programs
	// uplink leads to the other nodes; uplinks are all external devices, that one first.
	uplink  *netdev.Uplink
	uplinks []netdev.Uplink
	// own is this node: as the cluster reports it, or else as recovered from the datapath.
	own     cluster.Node
	current node.Desired
	// known are the facts of the last reconciliation, without the kernel's routes and neighbours; nil if a step
	// failed.
	known *node.Facts
	// failure is the error of the last reconciliation; errNotReady until the first one.
	failure error
	// vouches says that the routes in the datapath are the desired ones.
	vouches bool
	// healthzProblem is why --healthz-address is not served.
	healthzProblem string
	installer      *install.Installer
	// notInstalled is why the plugin or its configuration is not installed.
	notInstalled error
}

// errNotReady holds until the first reconciliation, which waits for the first snapshot.
var errNotReady = errors.New("the agent has not finished starting: it has not read the cluster's nodes yet")

// errOtherAgent says that the state directory is in use.
var errOtherAgent = errors.New("another agent runs")

// Run runs the agent until ctx ends. It locks the state directory, so that a second agent fails to start. Traffic
// continues after it returns.
func Run(ctx context.Context, config Config, version string, log *slog.Logger) (err error) {
	if err := config.Validate(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	unlock, err := lock(config.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	// First of all: an agent with another state directory may be running on this node.
	socket, err := server.Listen(config.Socket)
	if err != nil {
		return err
	}
	defer socket.Close()
	a, err := newAgent(config, version, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.datapath.Close()) }()
	log.Info("agent starts", "version", version, "config", fmt.Sprintf("%+v", config))

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, err := monitor.Watch(ctx, log)
	if err != nil {
		return fmt.Errorf("follow the kernel's network state: %w", err)
	}
	snapshots := source.NewHandover()
	tasks := []func(context.Context) error{
		a.expiry.Run,
		a.tables.Run,
		func(ctx context.Context) error { return status.BoundMemory(ctx, config.MemoryLimited) },
		func(ctx context.Context) error { return httpserve.Run(ctx, socket, server.Handler(a)) },
		func(ctx context.Context) error {
			return a.source.Run(ctx, func(s *cluster.Snapshot) {
				s = a.vetter.Vet(s)
				if a.services != nil {
					a.services.Update(s)
				}
				if a.policies != nil {
					a.policies.Update(s)
				}
				a.flows.Update(s)
				snapshots.Put(s)
			})
		},
		func(ctx context.Context) error { return a.run(ctx, snapshots, changes, a.installer.Watch(ctx)) },
	}
	if a.reporter != nil {
		tasks = append(tasks, a.reports.Run, a.reporter.Run)
	}
	if a.services != nil {
		tasks = append(tasks, a.services.Run)
	}
	if a.services != nil && config.HealthzAddress != "" {
		tasks = append(tasks, func(ctx context.Context) error {
			return a.services.ServeProxyHealth(ctx, a.eligible, a.setHealthzProblem)
		})
	}
	if a.policies != nil {
		tasks = append(tasks, a.policies.Run)
	}
	if config.Flows != agentflow.ModeOff {
		tasks = append(tasks, a.flows.Run)
	}
	if config.MetricsAddress != "" {
		tasks = append(tasks, a.serveMetrics)
	}
	ended := make(chan error, len(tasks))
	for _, task := range tasks {
		go func() { ended <- task(ctx) }()
	}
	for range tasks {
		err = errors.Join(err, <-ended)
		cancel() // the parts depend on each other
	}
	log.Info("agent stops; traffic continues")
	return err
}

// newAgent loads the datapath and takes over the endpoints of an earlier agent.
func newAgent(config Config, version string, log *slog.Logger) (*Agent, error) {
	if err := kernel.Required(); err != nil {
		return nil, err
	}
	pool, err := ipam.NewPool(nil)
	if err != nil {
		return nil, fmt.Errorf("make address pool: %w", err)
	}
	from, reporter, err := config.source(version, log)
	if err != nil {
		return nil, err
	}
	modes, err := mode.Choose(mode.Requested{Routing: config.Routing, Services: config.Services, Policy: config.Policy, Cgroup: config.Cgroup})
	if err != nil {
		return nil, err
	}
	installation, err := config.installation(modes)
	if err != nil {
		return nil, err
	}
	installer, err := install.New(installation, log)
	if err != nil {
		return nil, err
	}
	datapathConfig, err := config.datapath(modes)
	if err != nil {
		return nil, err
	}
	dp, err := datapath.Open(datapathConfig, log)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		config:          config,
		version:         version,
		log:             log,
		source:          from,
		vetter:          source.NewVetter(config.NodeName, config.NodeCIDRs, log),
		reporter:        reporter,
		started:         time.Now(),
		datapath:        dp,
		modes:           modes,
		features:        status.ProbeFeatures(dp.HaveTCX()),
		pool:            pool,
		failure:         errNotReady,
		installer:       installer,
		servicesChanged: loop.NewSignal(),
		failClosed:      failclosed.New(failclosed.Node(dp.AttachPod), log),
	}
	a.flows = agentflow.New(config.FlowConfig, config.NodeName, config.PolicySizes.Conntrack, dp, dp.Events.Losses, a.flowLocals, log)
	a.reports = status.NewReports(reporter, a.outlook, a.beats.Add("the loop of reports"))
	a.tables = status.NewTables(dp.Maps, a.beats.Add("the loop of tables"), log)
	a.expiry = conntrack.New(conntrack.Kernel{
		Now: table.Monotonic, ExpireNAT: dp.NAT.Expire, ExpireConntrack: a.flows.Expire,
		ForgetBackends: dp.NAT.ForgetBackends,
		DestroySockets: func(udp []netip.AddrPort) (int, error) { return dp.Sockets.DestroyUDP(a.endpoints.Namespaces(), udp) },
		ForgetPods:     dp.ForgetPods, Remembered: dp.Remembered,
	}, a.beats.Add("the loop of conntrack"), log)
	a.updateReadiness()
	a.mapCounts.Read = dp.Maps
	if err := errors.Join(a.newServices(), a.newPolicies()); err != nil {
		return nil, errors.Join(err, dp.Close())
	}
	a.metrics = newMetrics(a)
	a.programs = programs.New(programs.Options{
		Datapath: dp.Attacher, Commit: dp.Commit, KubeProxy: modes.Services == lb.ModeKubeProxy, Services: a.services, Log: log,
	})
	if a.endpoints, err = endpoint.New(a.endpointOptions(), endpoint.Node{NotReady: errNotReady}); err != nil {
		return nil, errors.Join(err, dp.Close())
	}
	return a, nil
}

// lock creates the state directory and locks it until the returned function is called or the process ends.
func lock(stateDir string) (unlock func(), err error) {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(stateDir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w with state directory %s", errOtherAgent, stateDir)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// run reconciles after changes, and periodically.
func (a *Agent) run(ctx context.Context, snapshots *source.Handover, changes <-chan monitor.Change, uninstalled <-chan struct{}) error {
	var took time.Duration
	reconcile := func() {
		begin := time.Now()
		a.reconcile()
		took = time.Since(begin)
	}
	// kernel is the time for reconciling changes of the kernel. Changes of the cluster do not wait for it.
	kernel := &loop.Tick{Do: func(time.Time) { reconcile() }}
	later := func() { kernel.Within(min(max(coalesceTime, coalesceShare*took), coalesceMax)) }
	events := make(chan func())
	l := loop.Loop{
		Beat: a.beats.Add("the main loop"), // it renews the lease every 10 s, so it detects a lock that is never released
		Wake: a.servicesChanged, Work: reconcile, Events: events,
		Ticks: []*loop.Tick{
			kernel,
			{Every: leaseRenewal, Do: func(time.Time) { a.renewLease() }},
			{Every: resyncInterval, Do: func(time.Time) {
				a.forgetVanished()
				reconcile()
			}},
		},
	}
	go forward(ctx, events, snapshots.Ready, func(struct{}) {
		s := snapshots.Take()
		if s == nil {
			return // an earlier event has taken it
		}
		switch isNew := a.take(s); {
		case isNew && a.reconcileNodes():
			later() // the rest, such as the neighbours
		case isNew:
			reconcile()
		}
		a.applied(s)
	})
	go forward(ctx, events, changes, func(c monitor.Change) {
		if c.Node || len(c.GoneHostEnds) > 0 && a.endpoints.Misses(c.GoneHostEnds) {
			later()
		} else {
			kernel.Within(min(max(podsCoalesceTime, podsCoalesceShare*took), podsCoalesceMax))
		}
	})
	go forward(ctx, events, uninstalled, func(struct{}) { later() })
	return l.Run(ctx)
}

// take takes over a snapshot and reports whether anything relevant to the agent has changed.
func (a *Agent) take(s *cluster.Snapshot) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.snapshot
	a.snapshot = s
	return before == nil || !cluster.Same(before.Nodes, s.Nodes) || before.Incomplete != s.Incomplete
}

// applied records that the changes of a snapshot are applied.
func (a *Agent) applied(s *cluster.Snapshot) {
	if !s.Since.IsZero() {
		a.metrics.changes.Observe(time.Since(s.Since).Seconds())
	}
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
func (a *Agent) forgetVanished() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endpoints.DropForgotten(a.source, a.snapshot)
	a.endpoints.ForgetDetached()
	a.programs.ForgetDetached()
}

// renewLease renews the lease on the link-layer addresses in the routes, unless the last reconciliation failed to
// write them.
func (a *Agent) renewLease() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure != nil || !a.vouches {
		return
	}
	if err := a.datapath.Lease.Renew(leaseTime); err != nil {
		a.log.Error("lease not renewed: the kernel resolves neighbours packet by packet", "error", err)
	}
}
