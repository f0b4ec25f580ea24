package agent

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
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/service"
)

// serviceTable is the datapath's side of Services; datapath.Services is one. Each call tries again what could not be had before, and gives
// all errors that still stand. What cannot be had of one port does not keep the others.
type serviceTable interface {
	// Sync makes the table hold these ports and nothing else; Apply changes some.
	Sync(all []service.Port) (changed int, err error)
	Apply(set []service.Port, removed []service.PortName) error
	// Backends are those that the table has, also of an earlier agent.
	Backends() ([]service.Backend, error)
	// Sweep deletes what nothing refers to any more.
	Sweep(now time.Time) error
}

// sweepInterval is how often the table is swept, and what could not be done before is tried again.
const sweepInterval = 3 * time.Second

// services carries Services from snapshots into the datapath. That is a path of its own beside the reconciliation: a change has
// to be in the kernel within milliseconds, whatever else the agent does, and ADD must not wait for ten thousand Services.
type services struct {
	log     *slog.Logger
	table   serviceTable
	metrics *metrics
	beat    *loop.Beat
	// health is told how many endpoints of Services are on this node.
	health func(where []netip.Addr, all []service.Health) (problems []string)
	// gone is told of backends that serve no more, and of those of them that served UDP. It must not block.
	gone func(all, udp []netip.AddrPort)
	wake loop.Signal

	inputs serviceInputs
	// mu is held during a pass, of which there is one at a time, and guards what follows. A pass takes no other lock of the agent's.
	mu         sync.Mutex
	translator *service.Translator
	// filled says that the table holds all that is known of all Services; synced that it has been made to hold nothing else since this agent
	// has started.
	filled, synced bool
	// found says that left are the backends that an earlier agent has left, until synced.
	found bool
	left  []service.Backend
	// backendHere says that this node itself, not a pod, has been a backend of a Service.
	backendHere atomic.Bool
	// own are the node's addresses in the last pass.
	own []netip.Addr
	// reconcile asks for a reconciliation, which depends on filled and on backendHere. It must not block.
	reconcile func()
	// written is the snapshot of the last pass.
	written *cluster.Snapshot
	// frontends counts those of each port, frontendCount all.
	frontends     map[service.PortName]int
	frontendCount int

	outcomeMu sync.Mutex // nobody who asks waits for a pass
	outcome   serviceOutcome
}

// serviceInputs are the newest of what a pass depends on.
type serviceInputs struct {
	mu       sync.Mutex
	snapshot *cluster.Snapshot   // nil until the source has delivered one
	node     *service.NodeConfig // nil until a reconciliation has found it out
	// hostPorts are those of the pods here, older ones first.
	hostPorts []service.HostPort
}

// serviceOutcome is what the last pass has come to.
type serviceOutcome struct {
	// filled and synced are as in services; failure is what could not be written.
	filled, synced bool
	failure        error
	// problems are those of Services and of pods' ports, healthProblems those of the health servers.
	problems       []service.Problem
	healthProblems []string
	// ports and frontends count what is wanted in the table.
	ports, frontends int
	// updated is when the table was last found or made right.
	updated time.Time
}

func newServices(table serviceTable, m *metrics, log *slog.Logger) *services {
	return &services{
		log: log, table: table, metrics: m, beat: &loop.Beat{}, wake: loop.NewSignal(),
		health:     func([]netip.Addr, []service.Health) []string { return nil },
		gone:       func(_, _ []netip.AddrPort) {},
		reconcile:  func() {},
		translator: service.NewTranslator(service.NodeConfig{}),
		frontends:  map[service.PortName]int{},
	}
}

// deliver, setNode and setHostPorts hand over what is new and return at once.
func (s *services) deliver(snapshot *cluster.Snapshot) {
	s.take(func(in *serviceInputs) { in.snapshot = snapshot })
}

func (s *services) setNode(node service.NodeConfig) {
	s.take(func(in *serviceInputs) { in.node = &node })
}

func (s *services) setHostPorts(hostPorts []service.HostPort) {
	s.take(func(in *serviceInputs) { in.hostPorts = hostPorts })
}

func (s *services) take(change func(*serviceInputs)) {
	s.inputs.mu.Lock()
	change(&s.inputs)
	s.inputs.mu.Unlock()
	s.wake.Set()
}

func (s *services) current() serviceOutcome {
	s.outcomeMu.Lock()
	defer s.outcomeMu.Unlock()
	return s.outcome
}

// run makes a pass whenever something is new, and sweeps, until ctx ends.
func (s *services) run(ctx context.Context) error {
	l := loop.Loop{
		Beat: s.beat, Wake: s.wake,
		Work:  func() { _ = s.pass() }, // what failed is in the outcome
		Ticks: []*loop.Tick{{Every: sweepInterval, Do: s.sweep}},
	}
	return l.Run(ctx)
}

// sweep makes the pass that is still due, if one is, and lets the table clean up.
func (s *services) sweep(now time.Time) {
	if o := s.current(); !o.synced || len(o.healthProblems) > 0 {
		_ = s.pass()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.current()
	if err := s.table.Sweep(now); s.synced || o.failure == nil {
		o.failure = err // else the pass still has to be made
	}
	s.conclude(o)
}

// pass makes the table hold what is known now, and gives what could not be written.
func (s *services) pass() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inputs.mu.Lock()
	snapshot, node, hostPorts := s.inputs.snapshot, s.inputs.node, s.inputs.hostPorts
	s.inputs.mu.Unlock()
	if snapshot == nil || node == nil {
		return nil
	}
	begin := time.Now()
	whole := wholeServices(snapshot)
	s.findBackends()
	if whole && !s.synced {
		s.translator.TakeBackends(s.left) // those that have ended meanwhile are gone
	}
	s.translator.SetNode(*node)
	changes := s.translator.Translate(snapshot, hostPorts)
	changed := len(changes.Set) + len(changes.Removed)
	err := s.write(changes, whole, begin)
	if !s.filled && knownServices(snapshot) && (err == nil || ofPorts(err)) {
		s.filled = true
		s.log.Info("Services are in the datapath", "ports", len(s.translator.Ports()), "took", time.Since(begin))
		s.reconcile()
	}
	if changed > 0 {
		s.metrics.servicesWritten(time.Since(begin), err)
	}
	if changed > 0 && err == nil && !snapshot.Since.IsZero() && snapshot != s.written {
		s.metrics.serviceChanges.Observe(time.Since(snapshot.Since).Seconds())
	}
	s.written = snapshot
	// These get no new connections from here on.
	if len(changes.GoneBackends) > 0 {
		s.gone(changes.GoneBackends, changes.GoneUDP)
	}
	s.count(changes)
	ports := changes.Set
	if !slices.Equal(s.own, node.HostPortAddresses) && !s.backendHere.Load() {
		ports = s.translator.Ports() // an old one may be at an address that is new
	}
	s.own = node.HostPortAddresses
	if !s.backendHere.Load() && hasBackendAt(ports, s.own) {
		s.backendHere.Store(true)
		s.reconcile()
	}
	s.conclude(serviceOutcome{failure: err, problems: changes.Problems, ports: len(s.frontends), frontends: s.frontendCount, healthProblems: s.health(node.NodePortAddresses, changes.Health)})
	return err
}

// findBackends finds, before anything is written, what an earlier agent has left.
func (s *services) findBackends() {
	if s.found {
		return
	}
	var err error
	if s.left, err = s.table.Backends(); err != nil {
		s.log.Warn("backends that have gone while no agent ran may stay unknown", "error", err)
		return // as will writing
	}
	s.found = true
}

// serviceKinds are what Services are translated from. Nodes only add where they are.
var serviceKinds = cluster.Kinds{cluster.KindService, cluster.KindEndpointSlice}

// knownServices tells whether a snapshot has lists of Services and of their endpoints.
func knownServices(s *cluster.Snapshot) bool {
	return !slices.ContainsFunc(serviceKinds, s.Unknown.Has)
}

// wholeServices tells whether a snapshot has everything about Services: before, what the table holds of an earlier agent is not to be taken
// for deleted.
func wholeServices(s *cluster.Snapshot) bool {
	return knownServices(s) && !slices.ContainsFunc(serviceKinds, s.Partial.Has)
}

// ofPorts tells whether an error is that of some ports, and not of the table itself.
func ofPorts(err error) bool {
	var ofPort *datapath.PortError
	return errors.As(err, &ofPort)
}

// write brings changes into the table: alone, or the first time with all there is.
func (s *services) write(changes service.Changes, whole bool, begin time.Time) error {
	if !whole || s.synced {
		if len(changes.Set)+len(changes.Removed) == 0 {
			return s.current().failure // which stands
		}
		return s.table.Apply(changes.Set, changes.Removed)
	}
	all := s.translator.Ports()
	changed, err := s.table.Sync(all)
	if err != nil && !ofPorts(err) {
		return err // of the table itself: once more, after a while
	}
	s.synced, s.left = true, nil
	s.log.Info("Services in the datapath are those of the cluster", "ports", len(all), "changed", changed, "took", time.Since(begin))
	return err
}

// hasBackendAt tells whether ports have a backend with one of these addresses.
func hasBackendAt(ports []service.Port, own []netip.Addr) bool {
	at := func(b netip.AddrPort) bool { return slices.Contains(own, b.Addr()) }
	return slices.ContainsFunc(ports, func(p service.Port) bool {
		return slices.ContainsFunc(p.Entries, func(e service.Entry) bool {
			return slices.ContainsFunc(e.Inside.Addresses, at) || slices.ContainsFunc(e.Outside.Addresses, at)
		})
	})
}

// count keeps count of what is wanted in the table.
func (s *services) count(changes service.Changes) {
	for _, name := range changes.Removed {
		s.frontendCount -= s.frontends[name]
		delete(s.frontends, name)
	}
	for _, p := range changes.Set {
		s.frontendCount += len(p.Entries) - s.frontends[p.Name]
		s.frontends[p.Name] = len(p.Entries)
	}
}

// conclude tells what has come of a pass or a sweep to those who ask, and what is new of it to the log.
func (s *services) conclude(now serviceOutcome) {
	before := s.current()
	now.filled, now.synced, now.updated = s.filled, s.synced, before.updated
	switch {
	case now.failure == nil:
		now.updated = time.Now()
	case before.failure == nil || before.failure.Error() != now.failure.Error():
		s.log.Error("Services cannot be written", "error", now.failure)
	}
	logNew(s.log, slices.Concat(sentences(before.problems), before.healthProblems), slices.Concat(sentences(now.problems), now.healthProblems))
	s.outcomeMu.Lock()
	defer s.outcomeMu.Unlock()
	s.outcome = now
}

// all are the problems of Services, one sentence each.
func (o serviceOutcome) all() []string {
	var all []string
	if o.failure != nil {
		all = append(all, strings.Split(o.failure.Error(), "\n")...)
	}
	return slices.Concat(all, sentences(o.problems), o.healthProblems)
}

// working tells whether Services are in the datapath, as those ask who send connections of the world here. That there is no room for
// another one is no reason to keep them from those that are there.
func (s *services) working() bool { return s.current().filled }
