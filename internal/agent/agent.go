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

	"github.com/beeline-cni/beeline/internal/agent/bandwidth"
	"github.com/beeline-cni/beeline/internal/agent/conntrack"
	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	agentflow "github.com/beeline-cni/beeline/internal/agent/flow"
	"github.com/beeline-cni/beeline/internal/agent/httpserve"
	"github.com/beeline-cni/beeline/internal/agent/ippools"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/mode"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agent/programs"
	"github.com/beeline-cni/beeline/internal/agent/reconcile"
	"github.com/beeline-cni/beeline/internal/agent/samenode"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/agent/status"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/agentapi/server"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	dpsamenode "github.com/beeline-cni/beeline/internal/datapath/samenode"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/install"
	"github.com/beeline-cni/beeline/internal/ipam"
)

// Agent is the agent of one node. It implements agentapi.Service.
type Agent struct {
	config  Config
	version string
	log     *slog.Logger
	source  cluster.Source
	// reporter is nil without an API server.
	reporter status.Reporter
	// announced is what this node tells the others; nil before.
	announced atomic.Pointer[cluster.Announced]
	reports   *status.Reports
	metrics   *metrics
	started   time.Time

	datapath *datapath.Datapath
	// services is nil where the datapath does not translate Services.
	services *lb.Services
	// servicesStatus is the Status of services; nil without.
	servicesStatus func() lb.Outcome
	// policies is nil where the datapath does not enforce NetworkPolicies.
	policies *agentpolicy.Policies
	sameNode *samenode.SameNode
	// sameNodeDatapath is nil without --same-node=sockets, or if the node cannot do it.
	sameNodeDatapath *dpsamenode.SameNode
	ipPools          *ippools.Pools
	// wake requests a reconciliation.
	wake       loop.Signal
	reconciler *reconcile.Reconciler
	expiry     *conntrack.Expiry
	vetter     *source.Vetter
	tables     *status.Tables
	flows      *agentflow.Flows
	failClosed *failclosed.Pods
	limits     *bandwidth.Limits
	modes      mode.Modes
	features   []agentapi.Feature
	// beats are those of the loops, for /healthz.
	beats     loop.Beats
	mapCounts status.MapCounts
	installer *install.Installer

	// mu guards the fields below and what the reconciler and the endpoints know of the node, and serializes all changes
	// of kernel state.
	mu        sync.Mutex
	pool      *ipam.Pool
	endpoints *endpoint.Endpoints
	programs  *programs.Programs
	// healthzProblem is why --healthz-address is not served.
	healthzProblem string
}

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
				a.sameNode.Update(s)
				a.ipPools.Update(s)
				a.reconciler.Update(s)
			})
		},
		a.reconciler.Run,
		a.ipPools.Run,
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
	if a.sameNodeDatapath != nil {
		tasks = append(tasks, a.sameNode.Run)
		defer func() { err = errors.Join(err, a.sameNodeDatapath.Close()) }()
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
	modes, err := mode.Choose(mode.Requested{Device: config.Device, Routing: config.Routing, Services: config.Services, Policy: config.Policy, Cgroup: config.Cgroup})
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
		config:     config,
		version:    version,
		log:        log,
		source:     from,
		vetter:     source.NewVetter(config.NodeName, config.NodeCIDRs, log),
		reporter:   reporter,
		started:    time.Now(),
		datapath:   dp,
		modes:      modes,
		features:   status.ProbeFeatures(dp.HaveTCX(), modes.NoNetkit == nil),
		pool:       pool,
		installer:  installer,
		wake:       loop.NewSignal(),
		failClosed: failclosed.New(failclosed.Node(dp.AttachPod), modes.Policy == agentpolicy.ModeEBPF, log),
		limits:     bandwidth.New(dp.Limits, log),
	}
	a.flows = agentflow.New(config.FlowConfig, config.NodeName, config.PolicySizes.Conntrack, dp, dp.Events.Losses, a.flowLocals, log)
	a.reports = status.NewReports(reporter, a.outlook, a.beats.Add("the loop of reports"))
	a.tables = status.NewTables(a.maps, a.beats.Add("the loop of tables"), log)
	a.expiry = conntrack.New(conntrack.Kernel{
		Now: table.Monotonic, ExpireNAT: dp.NAT.Expire, ExpireConntrack: a.flows.Expire,
		ForgetBackends: dp.NAT.ForgetBackends,
		DestroySockets: func(udp []netip.AddrPort) (int, error) { return dp.Sockets.DestroyUDP(a.endpoints.Namespaces(), udp) },
		ForgetPods:     dp.ForgetPods, Remembered: dp.Remembered,
	}, a.beats.Add("the loop of conntrack"), log)
	a.mapCounts.Read = a.maps
	a.newServices()
	a.newPolicies()
	a.newSameNode(dp)
	if a.ipPools, err = a.newIPPools(); err != nil {
		return nil, errors.Join(err, dp.Close())
	}
	a.metrics = newMetrics(a)
	a.programs = programs.New(programs.Options{
		Datapath: dp.Attacher, Commit: dp.Commit, Announce: a.announce, Encryption: config.Encryption,
		KubeProxy: modes.Services == lb.ModeKubeProxy, Services: a.services, Log: log,
	})
	if a.endpoints, err = endpoint.New(a.endpointOptions(), endpoint.Node{NotReady: reconcile.ErrNotReady}); err != nil {
		return nil, errors.Join(err, dp.Close())
	}
	a.reconciler, err = reconcile.New(reconcile.Options{
		Config: config.NodeConfig, LB: config.ServiceConfig, StateDir: config.StateDir, Lock: &a.mu, Source: from, Datapath: dp,
		Pool: pool, Endpoints: a.endpoints, Programs: a.programs, FailClosed: a.failClosed, Limits: a.limits, Expiry: a.expiry, Installer: installer,
		Services: a.services, Policies: a.policies, Wake: a.wake, PoolAddresses: a.ipPools.Remote, PoolAddressesKnown: a.ipPools.Complete, PoolAddressesChanged: a.ipPools.RemoteChanged(), Reconciled: a.metrics.reconciled, Applied: a.metrics.applied, Changed: a.reports.Update,
		Beat: a.beats.Add("the main loop"), Log: log,
	})
	if err != nil {
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
