package lb

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/lb"
	"github.com/beeline-cni/beeline/internal/service"
)

// Table is the datapath's table of Services; datapath.Services is one. Each call retries what failed before, and
// returns all errors that persist. An error of one port does not affect the others.
type Table interface {
	// Sync makes the table hold exactly these ports; Apply changes some.
	Sync(all []service.Port) (changed int, err error)
	Apply(set []service.Port, removed []service.PortName) error
	// Backends are those in the table, also of an earlier agent.
	Backends() ([]service.Backend, error)
	// Sweep deletes unreferenced entries.
	Sweep(now time.Time) error
	// All lists the ports of the table, for people.
	All() ([]lb.ServicePort, error)
}

// sweepInterval is how often the table is swept, and failed changes are retried.
const sweepInterval = 3 * time.Second

// Services writes Services from snapshots to the datapath, independently of reconciliations: a change has to be in
// the kernel within milliseconds, whatever else the agent does, and ADD must not wait for ten thousand Services.
type Services struct {
	config  Config
	log     *slog.Logger
	table   Table
	metrics metrics
	beat    *loop.Beat
	// health gets the number of local endpoints of Services.
	health  func(where []netip.Addr, all []service.Health) (problems []string)
	servers *healthServers
	// gone gets removed backends, and those of them that served UDP. It must not block.
	gone func(all, udp []netip.AddrPort)
	wake loop.Signal

	inputs serviceInputs
	// mu is held during a pass and guards the fields below. A pass takes no other lock of the agent.
	mu         sync.Mutex
	translator *service.Translator
	// filled says that the table holds everything known of all Services; synced that it has held nothing else since
	// this agent started.
	filled, synced bool
	// found says that left are the backends of an earlier agent, until synced.
	found bool
	left  []service.Backend
	// backendLocal says that this node itself, not a pod, has been a backend of a Service.
	backendLocal atomic.Bool
	// own are the node's addresses in the last pass.
	own []netip.Addr
	// reconcile requests a reconciliation, which depends on filled and on backendLocal. It must not block.
	reconcile func()
	// written is the snapshot of the last pass.
	written *cluster.Snapshot
	// frontends counts those of each port, frontendCount all.
	frontends     map[service.PortName]int
	frontendCount int

	outcomeMu sync.Mutex // readers do not wait for a pass
	outcome   Outcome
}

// serviceInputs are the newest inputs of a pass.
type serviceInputs struct {
	mu       sync.Mutex
	snapshot *cluster.Snapshot   // nil until the source has delivered one
	node     *service.NodeConfig // nil until a reconciliation has found it
	// hostPorts are those of the local pods, older ones first.
	hostPorts []service.HostPort
}

// Outcome is the result of the last pass.
type Outcome struct {
	// Filled says that the table holds everything known of all Services; Synced that it has held nothing else since
	// this agent started.
	Filled, Synced bool
	// Failure is why the table could not be written.
	Failure error
	// Problems are those of Services and of pods' ports, HealthProblems those of the health servers.
	Problems       []service.Problem
	HealthProblems []string
	// Ports and Frontends count the desired content of the table.
	Ports, Frontends int
	// Updated is when the table was last verified or updated.
	Updated time.Time
}

// Hooks are what Services calls. None of them may block.
type Hooks struct {
	// BackendsGone gets removed backends, sorted, and those of them that served UDP.
	BackendsGone func(all, udp []netip.AddrPort)
	// Reconcile requests a reconciliation: see Filled and BackendLocal.
	Reconcile func()
}

// New makes a Services that writes to a table.
func New(config Config, table Table, hooks Hooks, beat *loop.Beat, log *slog.Logger) *Services {
	s := newServices(table, log)
	s.config, s.gone, s.reconcile, s.beat = config, hooks.BackendsGone, hooks.Reconcile, beat
	s.servers = newHealthServers(s.Working)
	s.servers.everywhere = len(config.NodePortAddresses) == 0
	s.health = s.servers.sync
	return s
}

func newServices(table Table, log *slog.Logger) *Services {
	return &Services{
		log: log, table: table, metrics: newMetrics(), beat: &loop.Beat{}, wake: loop.NewSignal(),
		health:     func([]netip.Addr, []service.Health) []string { return nil },
		gone:       func(_, _ []netip.AddrPort) {},
		reconcile:  func() {},
		translator: service.NewTranslator(service.NodeConfig{}),
		frontends:  map[service.PortName]int{},
	}
}

// Update hands over a snapshot. It does not block.
func (s *Services) Update(snapshot *cluster.Snapshot) {
	s.take(func(in *serviceInputs) { in.snapshot = snapshot })
}

func (s *Services) UpdateNode(node service.NodeConfig) {
	s.take(func(in *serviceInputs) { in.node = &node })
}

func (s *Services) UpdateHostPorts(hostPorts []service.HostPort) {
	s.take(func(in *serviceInputs) { in.hostPorts = hostPorts })
}

func (s *Services) take(change func(*serviceInputs)) {
	s.inputs.mu.Lock()
	change(&s.inputs)
	s.inputs.mu.Unlock()
	s.wake.Set()
}

func (s *Services) Status() Outcome {
	s.outcomeMu.Lock()
	defer s.outcomeMu.Unlock()
	return s.outcome
}

// Run makes a pass after each change, and sweeps, until ctx ends.
func (s *Services) Run(ctx context.Context) error {
	if s.servers != nil {
		defer s.servers.close()
	}
	l := loop.Loop{
		Beat: s.beat, Wake: s.wake,
		Work:  func() { _ = s.Pass() }, // errors are in the outcome
		Ticks: []*loop.Tick{{Every: sweepInterval, Do: s.sweep}},
	}
	return l.Run(ctx)
}

// sweep makes the pass that is due, if any, and lets the table clean up.
func (s *Services) sweep(now time.Time) {
	if o := s.Status(); !o.Synced || len(o.HealthProblems) > 0 {
		_ = s.Pass()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.Status()
	if err := s.table.Sweep(now); s.synced || o.Failure == nil {
		o.Failure = err // else the pass is still due
	}
	s.conclude(o)
}

// Pass makes the table hold the current inputs, and returns what failed.
func (s *Services) Pass() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inputs.mu.Lock()
	snapshot, node, hostPorts := s.inputs.snapshot, s.inputs.node, s.inputs.hostPorts
	s.inputs.mu.Unlock()
	if snapshot == nil || node == nil {
		return nil
	}
	begin := time.Now()
	complete := whole(snapshot)
	s.findBackends()
	if complete && !s.synced {
		s.translator.AddBackends(s.left) // backends that ended meanwhile are gone
	}
	s.translator.SetNode(*node)
	changes := s.translator.Translate(snapshot, hostPorts)
	changed := len(changes.Set) + len(changes.Removed)
	err := s.write(changes, complete, begin)
	if !s.filled && known(snapshot) && (err == nil || ofPorts(err)) {
		s.filled = true
		s.log.Info("Services are in the datapath", "ports", len(s.translator.Ports()), "took", time.Since(begin))
		s.reconcile()
	}
	if changed > 0 {
		s.metrics.written(time.Since(begin), err)
	}
	if changed > 0 && err == nil && !snapshot.Since.IsZero() && snapshot != s.written {
		s.metrics.changes.Observe(time.Since(snapshot.Since).Seconds())
	}
	s.written = snapshot
	// These get no new connections from here on.
	if len(changes.GoneBackends) > 0 {
		s.gone(changes.GoneBackends, changes.GoneUDP)
	}
	s.count(changes)
	ports := changes.Set
	if !slices.Equal(s.own, node.HostPortAddresses) && !s.backendLocal.Load() {
		ports = s.translator.Ports() // an old one may have an address that is new
	}
	s.own = node.HostPortAddresses
	if !s.backendLocal.Load() && hasBackendAt(ports, s.own) {
		s.backendLocal.Store(true)
		s.reconcile()
	}
	s.conclude(Outcome{Failure: err, Problems: changes.Problems, Ports: len(s.frontends), Frontends: s.frontendCount, HealthProblems: s.health(node.NodePortAddresses, changes.Health)})
	return err
}

// findBackends reads the backends of an earlier agent before anything is written.
func (s *Services) findBackends() {
	if s.found {
		return
	}
	var err error
	if s.left, err = s.table.Backends(); err != nil {
		s.log.Warn("backends that were removed while no agent ran may stay unknown", "error", err)
		return // writing will fail, too
	}
	s.found = true
}

// serviceKinds are the inputs of Services. Nodes only add locations.
var serviceKinds = cluster.Kinds{cluster.KindService, cluster.KindEndpointSlice}

// known reports whether a snapshot has lists of Services and of their endpoints.
func known(s *cluster.Snapshot) bool {
	return !slices.ContainsFunc(serviceKinds, s.Unknown.Has)
}

// whole reports whether a snapshot has everything about Services. Until then, the table's content from an earlier
// agent must not be deleted.
func whole(s *cluster.Snapshot) bool {
	return known(s) && !slices.ContainsFunc(serviceKinds, s.Partial.Has)
}

// ofPorts reports whether an error is about some ports, and not about the table itself.
func ofPorts(err error) bool {
	var ofPort *lb.PortError
	return errors.As(err, &ofPort)
}

// write writes changes to the table: only the changes, or at first everything.
func (s *Services) write(changes service.Changes, complete bool, begin time.Time) error {
	if !complete || s.synced {
		if len(changes.Set)+len(changes.Removed) == 0 {
			return s.Status().Failure // which persists
		}
		return s.table.Apply(changes.Set, changes.Removed)
	}
	all := s.translator.Ports()
	changed, err := s.table.Sync(all)
	if err != nil && !ofPorts(err) {
		return err // an error of the table itself: retried after a while
	}
	s.synced, s.left = true, nil
	s.log.Info("Services in the datapath are those of the cluster", "ports", len(all), "changed", changed, "took", time.Since(begin))
	return err
}

// hasBackendAt reports whether ports have a backend with one of these addresses.
func hasBackendAt(ports []service.Port, own []netip.Addr) bool {
	at := func(b netip.AddrPort) bool { return slices.Contains(own, b.Addr()) }
	return slices.ContainsFunc(ports, func(p service.Port) bool {
		return slices.ContainsFunc(p.Entries, func(e service.Entry) bool {
			return slices.ContainsFunc(e.Internal.Addresses, at) || slices.ContainsFunc(e.External.Addresses, at)
		})
	})
}

// count counts the desired content of the table.
func (s *Services) count(changes service.Changes) {
	for _, name := range changes.Removed {
		s.frontendCount -= s.frontends[name]
		delete(s.frontends, name)
	}
	for _, p := range changes.Set {
		s.frontendCount += len(p.Entries) - s.frontends[p.Name]
		s.frontends[p.Name] = len(p.Entries)
	}
}

// conclude publishes the outcome of a pass or a sweep, and logs what is new.
func (s *Services) conclude(now Outcome) {
	before := s.Status()
	now.Filled, now.Synced, now.Updated = s.filled, s.synced, before.Updated
	switch {
	case now.Failure == nil:
		now.Updated = time.Now()
	case before.Failure == nil || before.Failure.Error() != now.Failure.Error():
		s.log.Error("writing Services failed", "error", now.Failure)
	}
	problem.LogNew(s.log, slices.Concat(problem.Texts(before.Problems), before.HealthProblems), slices.Concat(problem.Texts(now.Problems), now.HealthProblems))
	s.outcomeMu.Lock()
	defer s.outcomeMu.Unlock()
	s.outcome = now
}

// All are the problems of Services, one sentence each.
func (o Outcome) All() []string {
	var all []string
	if o.Failure != nil {
		all = append(all, strings.Split(o.Failure.Error(), "\n")...)
	}
	return slices.Concat(all, problem.Texts(o.Problems), o.HealthProblems)
}

// Working reports whether Services are in the datapath, for load balancers that send external connections here. A
// full table is no reason to withdraw the node: existing Services work.
func (s *Services) Working() bool { return s.Status().Filled }

// Filled reports whether the table holds everything known of all Services.
func (s *Services) Filled() bool { return s.Status().Filled }

// BackendLocal reports whether this node itself, not a pod, has been a backend of a Service.
func (s *Services) BackendLocal() bool { return s.backendLocal.Load() }
