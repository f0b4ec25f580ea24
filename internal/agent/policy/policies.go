// Package policy brings NetworkPolicies into the datapath: from snapshots of the cluster and the pods of this node,
// independently of reconciliations.
package policy

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	dppolicy "github.com/beeline-cni/beeline/internal/datapath/policy"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Table is the datapath's policy table; datapath.Policies is one. Pods of rules that do not fit are isolated; others
// are not affected.
type Table interface {
	// Sync makes the tables hold exactly these.
	Sync(*policy.Tables) (changed int, err error)
	// Close isolates pods by their addresses until Release, whatever the tables hold meanwhile.
	Close([]netip.Addr) error
	Release([]netip.Addr) error
	// HasAny reports whether the tables have entries of one of these addresses.
	HasAny([]netip.Addr) bool
}

// policyRetry is how often failed writes are retried, and policyRetryFull what did not fit: usually another pass
// frees entries.
const (
	policyRetry     = time.Second
	policyRetryFull = 30 * time.Second
)

// Policies writes NetworkPolicies from snapshots to the datapath, independently of reconciliations.
//
// A new pod is isolated until tables that include it are active. The tables of an earlier agent stay active until
// this one has synced all policies.
type Policies struct {
	options Options
	log     *slog.Logger
	table   Table
	metrics metrics
	compile func(*cluster.Snapshot, policy.Local) (*policy.Tables, []policy.Problem)
	// spent is the CPU time of the thread that runs passes.
	spent func() time.Duration
	// postponed is when compile may have another result for the same inputs; zero: never.
	postponed func() time.Time
	wake      loop.Signal

	inputs inputs
	// holding is held while addresses are closed and released, so that the table sees them in the order of the
	// inputs.
	holding sync.Mutex
	// mu is held during a pass and guards the fields below. The only other lock that a pass takes is that of
	// failClosed: an agent may hold its own.
	mu sync.Mutex
	// done is the number of the inputs of the last pass.
	done uint64
	// since is the time of the first change that is not active yet; zero if all are.
	since  time.Time
	states states

	outcomeMu sync.Mutex // readers do not wait for a pass
	outcome   outcome
}

// inputs are the newest inputs of a pass.
type inputs struct {
	mu       sync.Mutex
	snapshot *cluster.Snapshot // nil until the source has delivered one
	// since is the time of the first change that no pass has started with; zero if there is none.
	since time.Time
	// passing and passingPods are the inputs of the current pass; nil if there is none.
	passing     *cluster.Snapshot
	passingPods []policy.LocalPod
	// located says that a reconciliation has found the addresses in local.
	located bool
	local   policy.Local
	// held are addresses that were closed for new pods, each with the number of the inputs at the time. A pass with
	// these or later inputs releases them: its tables include the pod, or it is gone.
	held map[netip.Addr]uint64
	// number counts changes.
	number uint64
}

// Options is what Policies depends on.
type Options struct {
	Config Config
	// Node is the name of this node.
	Node string
	// Manifests says that the cluster's state comes from manifests: pods have no labels of their own.
	Manifests bool
	// Services, NodePorts, ExternalIPs and DSR explain connections to Services. Services says what chooses backends: if
	// not the datapath, then the kernel stack, behind the programs at the sender. NodePorts are the networks of NodePort
	// addresses; none means the addresses of Nodes. DSR says that backends of other nodes may reply to external clients.
	Services               lb.Mode
	NodePorts, ExternalIPs []netip.Prefix
	DSR                    bool
	// Fresh says that the table was empty at the start.
	Fresh bool
	// FailClosed prepares for sets before they are active and returns the pods that lack a program: see
	// failclosed.Pods.Update.
	FailClosed func(map[netip.Addr]policy.Sets) map[netip.Addr]failclosed.Missing
	// Changed is called after each pass. Reconcile is called after the pass that first filled the tables, and after
	// one where all pods have their programs while some had not before: programs and the node may wait for these. They
	// must not block.
	Changed, Reconcile func()
	Beat               *loop.Beat
}

// New makes a Policies that writes to a table.
func New(o Options, table Table, log *slog.Logger) *Policies {
	compiler := policy.NewCompiler(o.Node)
	sizes := o.Config.PolicySizes
	compiler.SetSizes(policy.Sizes{
		Blocks:   sizes.Identities - 1, // the datapath may add one: see dppolicy.Table
		Policies: sizes.Policies, Ports: int(config.PolicyPorts(uint32(sizes.Policies))),
	})
	p := &Policies{
		options: o, log: log, table: table, metrics: newMetrics(),
		compile: compiler.Compile, postponed: compiler.Postponed, spent: threadTime, wake: loop.NewSignal(), states: states{},
	}
	p.inputs.local.Unlabelled = o.Manifests
	p.inputs.held = map[netip.Addr]uint64{}
	return p
}

// Update hands over a snapshot. It does not block.
func (p *Policies) Update(snapshot *cluster.Snapshot) {
	p.take(func(in *inputs) (isNew bool) {
		isNew = in.snapshot == nil || !same(in.snapshot, snapshot)
		in.snapshot = snapshot
		if isNew {
			in.since = earlier(in.since, snapshot.Since)
		}
		return isNew
	})
}

// earlier gives the earlier of two times; zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (p *Policies) UpdateNode(addresses []netip.Addr) {
	p.take(func(in *inputs) (isNew bool) {
		isNew = !in.located || !slices.Equal(in.local.Addresses, addresses)
		in.local.Addresses, in.located = addresses, true
		return isNew
	})
}

func (p *Policies) UpdatePods(pods []policy.LocalPod) {
	p.take(func(in *inputs) (isNew bool) {
		isNew = !slices.EqualFunc(in.local.Pods, pods, func(x, y policy.LocalPod) bool {
			return x.Pod == y.Pod && x.UID == y.UID && slices.Equal(x.Addresses, y.Addresses)
		})
		in.local.Pods = pods
		return isNew
	})
}

func (p *Policies) take(change func(*inputs) (isNew bool)) (number uint64) {
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	if !change(&p.inputs) {
		return p.inputs.number
	}
	p.inputs.number++
	p.wake.Set()
	return p.inputs.number
}

// same reports whether two snapshots are the same for policies. Nodes have the addresses of this one.
func same(a, b *cluster.Snapshot) bool {
	return cluster.Same(a.NetworkPolicies, b.NetworkPolicies) && cluster.Same(a.Namespaces, b.Namespaces) && a.Pods.Same(b.Pods) &&
		cluster.Same(a.Nodes, b.Nodes) && slices.Equal(a.Unknown, b.Unknown) && slices.Equal(a.Partial, b.Partial)
}

// current is the outcome of the last pass.
func (p *Policies) current() outcome {
	p.outcomeMu.Lock()
	defer p.outcomeMu.Unlock()
	return p.outcome
}

// Run makes a pass after each change, and again after a failure, until ctx ends.
func (p *Policies) Run(ctx context.Context) error {
	runtime.LockOSThread() // see spent
	defer runtime.UnlockOSThread()
	var spent time.Duration
	pass := func() {
		before := p.spent()
		_ = p.Pass() // errors are in the outcome
		spent = p.spent() - before
	}
	passIf := func(due func(outcome) bool) func(time.Time) {
		return func(time.Time) {
			if spent = 0; due(p.current()) {
				pass()
			}
		}
	}
	l := loop.Loop{
		Beat: p.options.Beat, Wake: p.wake, Work: pass,
		Ticks: []*loop.Tick{
			{Every: policyRetry, Do: passIf(func(o outcome) bool {
				return len(o.missing) > 0 || o.failure != nil && !ofSets(o.failure) || o.due()
			})},
			{Every: policyRetryFull, Do: passIf(func(o outcome) bool { return o.failure != nil })},
		},
		Pause: func() time.Duration { return gapAfter(spent) },
	}
	return l.Run(ctx)
}

// PassAt makes a pass with inputs of at least this number, unless there has been one.
func (p *Policies) PassAt(number uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done >= number {
		return p.current().failure
	}
	return p.passLocked()
}

// Pass makes the tables hold the current inputs, and returns what failed.
func (p *Policies) Pass() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passLocked()
}

// passInputs are the inputs of one pass.
type passInputs struct {
	snapshot *cluster.Snapshot
	local    policy.Local
	held     map[netip.Addr]uint64
	number   uint64
}

// takeInputs gives the newest inputs; ok is false while these are incomplete, and located reports whether this node's
// addresses are known.
func (p *Policies) takeInputs() (now passInputs, located, ok bool) {
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	now = passInputs{p.inputs.snapshot, p.inputs.local, maps.Clone(p.inputs.held), p.inputs.number}
	if !p.inputs.located || now.snapshot == nil || !known(now.snapshot) {
		p.inputs.since = time.Time{} // the time until the cluster is synced does not count
		return now, p.inputs.located, false
	}
	p.inputs.passing, p.inputs.passingPods = now.snapshot, now.local.Pods
	p.since, p.inputs.since = earlier(p.since, p.inputs.since), time.Time{}
	now.local = now.local.Named(now.snapshot)
	return now, true, true
}

func (p *Policies) passLocked() error {
	now, located, ok := p.takeInputs()
	switch {
	case !located:
		return nil
	case !ok:
		return p.admitNode(now.local.Addresses)
	}
	defer p.passed()
	begin := time.Now()
	last := p.current()
	tables, problems := last.tables, last.compileProblems
	if now.number != p.done || last.due() { // else it is only a retry
		tables, problems = p.compile(now.snapshot, now.local)
		// Changes that came meanwhile, above all a new pod, are added now: they cost only what they touch, and their
		// ADD waits for this pass and no other.
		if newer, _, ok := p.takeInputs(); ok && newer.number != now.number {
			now = newer
			tables, problems = p.compile(now.snapshot, now.local)
		}
	}
	compiled := time.Now()
	missing := p.options.FailClosed(tables.Pods)
	changed, err := p.table.Sync(tables)
	if err == nil || ofSets(err) {
		err = errors.Join(err, p.releaseHeld(now.held))
	}
	p.done = now.number
	p.metrics.applied(compiled.Sub(begin), time.Since(compiled), errors.Join(err, failclosed.Err(missing)))
	p.observe(changed, err)
	p.log.Debug("NetworkPolicies written", "policies", len(now.snapshot.NetworkPolicies), "changed", changed, "compile", compiled.Sub(begin), "apply", time.Since(compiled), "error", err)
	p.conclude(outcome{failure: err, missing: missing, compileProblems: problems, tables: tables, postponed: p.postponed(), snapshot: now.snapshot, local: now.local})
	return err
}

// passed marks the end of a pass.
func (p *Policies) passed() {
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	p.inputs.passing, p.inputs.passingPods = nil, nil
}

// observe records how long a change took to become active. A failed write continues to count.
func (p *Policies) observe(changed int, err error) {
	if err != nil && !ofSets(err) {
		return
	}
	if err == nil && changed > 0 && !p.since.IsZero() {
		p.metrics.changes.Observe(time.Since(p.since).Seconds())
	}
	p.since = time.Time{}
}

// ofSets reports whether an error is about some sets of rules, whose pods are isolated, and not about the tables
// themselves.
func ofSets(err error) bool {
	var some *dppolicy.SyncError
	return errors.As(err, &some)
}

// admitNode lets this node reach isolated pods while policies are not synced, unless an earlier agent has done so.
func (p *Policies) admitNode(own []netip.Addr) error {
	if !p.options.Fresh {
		return nil
	}
	identities := make(map[netip.Addr]policy.Identity, len(own))
	for _, a := range own {
		identities[a] = policy.IdentityNode
	}
	_, err := p.table.Sync(&policy.Tables{Identities: identities})
	if err != nil {
		p.log.Error("this node does not reach isolated pods", "error", err)
	}
	return err
}

// policyKinds are the inputs of policies.
var policyKinds = cluster.Kinds{cluster.KindNetworkPolicy, cluster.KindNamespace, cluster.KindPod}

// known reports whether a snapshot has all policies, and everything that they select from: a pod without its labels
// would not be selected. Until then, the tables of an earlier agent stay active, and new pods are isolated.
func known(s *cluster.Snapshot) bool {
	return !slices.ContainsFunc(policyKinds, s.Unknown.Has) && !slices.ContainsFunc(policyKinds, s.Partial.Has)
}

// Filled reports whether the tables have had all policies since this agent started.
func (p *Policies) Filled() bool { return p.current().filled }

// Names are the names of the policies in the tables; nil before the first pass. They must not be changed.
func (p *Policies) Names() map[policy.Policy]cluster.Key {
	if t := p.current().tables; t != nil {
		return t.Names
	}
	return nil
}
