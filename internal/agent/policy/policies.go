// Package policy brings NetworkPolicies into the datapath: from snapshots of the cluster and the pods of this node, independently of
// reconciliations.
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

// Table is the datapath's side of NetworkPolicies; datapath.Policies is one. What does not fit leaves the pods closed that it
// is about, and does not keep the others.
type Table interface {
	// Sync makes the tables hold these and nothing else.
	Sync(*policy.Tables) (changed int, err error)
	// Close closes pods by their addresses until Release, whatever tables say meanwhile.
	Close([]netip.Addr) error
	Release([]netip.Addr) error
	// Knows tells whether the tables say something of one of these addresses.
	Knows([]netip.Addr) bool
}

// policyRetry is how often what could not be written is tried again, and policyRetryFull what did not fit: what makes room is mostly a pass
// of its own.
const (
	policyRetry     = time.Second
	policyRetryFull = 30 * time.Second
)

// Policies carries NetworkPolicies from snapshots into the datapath: a path of its own as that of Services is.
//
// A pod that is added is closed until tables are in force that were made with it. Whatever an earlier agent has put into force stays until
// this one knows all policies.
type Policies struct {
	log     *slog.Logger
	table   Table
	metrics metrics
	options Options
	beat    *loop.Beat
	compile func(*cluster.Snapshot, policy.Local) (*policy.Tables, []policy.Problem)
	// spent is the CPU time of the thread that runs passes.
	spent func() time.Duration
	// postponed is when compile may say something else of the same inputs; zero if it will not.
	postponed func() time.Time
	wake      loop.Signal
	// fresh says that the table began empty.
	fresh bool
	// failClosed prepares for sets before they are active and returns the pods that lack a program: see failclosed.Pods.Update.
	failClosed func(map[netip.Addr]policy.Sets) map[netip.Addr]failclosed.Missing
	// changed is called after each pass, filledFirst after the one that first filled the tables, and completeAgain after one where all pods
	// have their programs and in the one before some had not. They must not block.
	changed, filledFirst, completeAgain func()

	inputs inputs
	// holding is held while addresses are closed and released, so that the table hears of it in the order of the inputs.
	holding sync.Mutex
	// mu is held during a pass, of which there is one at a time, and guards what follows. The one lock that a pass takes beside is that
	// of failClosed: an agent may hold its own.
	mu sync.Mutex
	// done is the number of the inputs of the last pass.
	done uint64
	// since is when the first change was heard of that is not in force yet; zero if all are.
	since  time.Time
	states states

	outcomeMu sync.Mutex // nobody who asks waits for a pass
	outcome   outcome
}

// inputs are the newest of what a pass depends on.
type inputs struct {
	mu       sync.Mutex
	snapshot *cluster.Snapshot // nil until the source has delivered one
	// since is when the first change was heard of that no pass has taken up; zero if there is none.
	since time.Time
	// passing and passingPods are what the pass under way is made with; nil if there is none.
	passing     *cluster.Snapshot
	passingPods []policy.LocalPod
	// located says that a reconciliation has found out the addresses in local.
	located bool
	local   policy.Local
	// held are addresses that were closed for pods that were added, each with the number that the inputs had then. A pass with these or later
	// inputs releases them: its tables know the pod, or that it is gone.
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
	// Services, NodePorts, ExternalIPs and DSR explain connections to Services. NodePorts are the networks of NodePort addresses; none
	// means the addresses of Nodes.
	Services               lb.Mode
	NodePorts, ExternalIPs []netip.Prefix
	DSR                    bool
	// Fresh says that the table began empty.
	Fresh bool
	// FailClosed prepares for sets before they are active: see failclosed.Pods.Update.
	FailClosed func(map[netip.Addr]policy.Sets) map[netip.Addr]failclosed.Missing
	// Changed is called after each pass. Reconcile is called after the pass that first filled the tables, and after one where all pods have
	// their programs and in the one before some had not. They must not block.
	Changed, Reconcile func()
	Beat               *loop.Beat
}

// New makes a Policies that writes to a table.
func New(o Options, table Table, log *slog.Logger) *Policies {
	compiler := policy.NewCompiler(o.Node)
	sizes := o.Config.PolicySizes
	compiler.SetSizes(policy.Sizes{Addresses: sizes.Identities, Policies: sizes.Policies, Ports: int(config.PolicyPorts(uint32(sizes.Policies)))})
	p := newPolicies(table, compiler.Compile, o.Manifests, log)
	p.options, p.postponed, p.fresh, p.failClosed, p.changed, p.beat = o, compiler.Postponed, o.Fresh, o.FailClosed, o.Changed, o.Beat
	p.filledFirst, p.completeAgain = o.Reconcile, o.Reconcile // programs and the node may wait for these
	return p
}

func newPolicies(table Table, compile func(*cluster.Snapshot, policy.Local) (*policy.Tables, []policy.Problem), unlabelled bool, log *slog.Logger) *Policies {
	p := &Policies{
		log: log, table: table, compile: compile, metrics: newMetrics(), beat: &loop.Beat{}, wake: loop.NewSignal(), spent: threadTime, states: states{},
		changed: func() {}, filledFirst: func() {}, completeAgain: func() {},
	}
	p.failClosed = func(map[netip.Addr]policy.Sets) map[netip.Addr]failclosed.Missing { return nil }
	p.postponed = func() time.Time { return time.Time{} }
	p.inputs.local.Unlabelled = unlabelled
	p.inputs.held = map[netip.Addr]uint64{}
	return p
}

// deliver, setNode and setPods hand over what is new and return at once.
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

// earlier gives the first of two times; zero is none.
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

// same tells whether two snapshots are the same to policies. Nodes tell whose addresses are this one's.
func same(a, b *cluster.Snapshot) bool {
	return cluster.Same(a.NetworkPolicies, b.NetworkPolicies) && cluster.Same(a.Namespaces, b.Namespaces) && a.Pods.Same(b.Pods) &&
		cluster.Same(a.Nodes, b.Nodes) && slices.Equal(a.Unknown, b.Unknown) && slices.Equal(a.Partial, b.Partial)
}

// current is what the last pass has come to.
func (p *Policies) current() outcome {
	p.outcomeMu.Lock()
	defer p.outcomeMu.Unlock()
	return p.outcome
}

// run makes a pass whenever something is new, and again after one that has failed, until ctx ends.
func (p *Policies) Run(ctx context.Context) error {
	runtime.LockOSThread() // see spent
	defer runtime.UnlockOSThread()
	var spent time.Duration
	pass := func() {
		before := p.spent()
		_ = p.Pass() // what failed is in the outcome
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
		Beat: p.beat, Wake: p.wake, Work: pass,
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

// passAt makes a pass with inputs of this number, unless there has been one.
func (p *Policies) PassAt(number uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done >= number {
		return p.current().failure
	}
	return p.passLocked()
}

// pass makes the tables hold what is known now, and gives what could not be written.
func (p *Policies) Pass() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passLocked()
}

// passInputs are what one pass is made with.
type passInputs struct {
	snapshot *cluster.Snapshot
	local    policy.Local
	held     map[netip.Addr]uint64
	number   uint64
}

// takeInputs gives the newest inputs; ok is false while these are not enough, and located says whether this node's addresses are known.
func (p *Policies) takeInputs() (now passInputs, located, ok bool) {
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	now = passInputs{p.inputs.snapshot, p.inputs.local, maps.Clone(p.inputs.held), p.inputs.number}
	if !p.inputs.located || now.snapshot == nil || !known(now.snapshot) {
		p.inputs.since = time.Time{} // how long the cluster is not known is another matter
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
	if now.number != p.done || last.due() { // else it is only tried again
		tables, problems = p.compile(now.snapshot, now.local)
		// What has come while that took long, above all a pod that is being added, comes in here: it costs what it touches, and
		// whoever waits for it waits for this pass and no other.
		if newer, _, ok := p.takeInputs(); ok && newer.number != now.number {
			now = newer
			tables, problems = p.compile(now.snapshot, now.local)
		}
	}
	compiled := time.Now()
	missing := p.failClosed(tables.Pods)
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

// passed takes note that a pass is over.
func (p *Policies) passed() {
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	p.inputs.passing, p.inputs.passingPods = nil, nil
}

// observe takes note of how long a change took to be in force. What could not be written goes on taking.
func (p *Policies) observe(changed int, err error) {
	if err != nil && !ofSets(err) {
		return
	}
	if err == nil && changed > 0 && !p.since.IsZero() {
		p.metrics.changes.Observe(time.Since(p.since).Seconds())
	}
	p.since = time.Time{}
}

// ofSets tells whether an error is that of some sets of rules, whose pods are closed, and not of the tables themselves.
func ofSets(err error) bool {
	var some *dppolicy.SyncError
	return errors.As(err, &some)
}

// admitNode lets this node reach the pods that are closed while policies are not known, if no earlier agent has done so.
func (p *Policies) admitNode(own []netip.Addr) error {
	if !p.fresh {
		return nil
	}
	identities := make(map[netip.Addr]policy.Identity, len(own))
	for _, a := range own {
		identities[a] = policy.IdentityNode
	}
	_, err := p.table.Sync(&policy.Tables{Identities: identities})
	if err != nil {
		p.log.Error("this node does not reach pods that are closed", "error", err)
	}
	return err
}

// policyKinds are what policies are compiled from.
var policyKinds = cluster.Kinds{cluster.KindNetworkPolicy, cluster.KindNamespace, cluster.KindPod}

// known tells whether a snapshot has all policies, and all that they select from: a pod without its labels is one that they do not
// select. Before, what an earlier agent has put into force stays, and pods that are added are closed.
func known(s *cluster.Snapshot) bool {
	return !slices.ContainsFunc(policyKinds, s.Unknown.Has) && !slices.ContainsFunc(policyKinds, s.Partial.Has)
}

// Filled says that the tables have had all policies since this agent started.
func (p *Policies) Filled() bool { return p.current().filled }

// Names are the names of the policies in the tables; nil before the first pass. Nobody changes them.
func (p *Policies) Names() map[policy.Policy]cluster.Key {
	if t := p.current().tables; t != nil {
		return t.Names
	}
	return nil
}
