package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/policy"
)

// policyTable is the datapath's side of NetworkPolicies; datapath.Policies is one. What does not fit leaves the pods closed that it
// is about, and does not keep the others.
type policyTable interface {
	// Sync makes the tables hold these and nothing else.
	Sync(*policy.Tables) (changed int, err error)
	// Close closes pods by their addresses until Release, whatever tables say meanwhile.
	Close([]netip.Addr) error
	Release([]netip.Addr) error
}

// policyRetry is how often what could not be written is tried again, and policyRetryFull what did not fit: what makes room is mostly a pass
// of its own.
const (
	policyRetry     = time.Second
	policyRetryFull = 30 * time.Second
)

// policies carries NetworkPolicies from snapshots into the datapath: a path of its own as that of Services is.
//
// A pod that is added is closed until tables are in force that were made with it. Whatever an earlier agent has put into force stays until
// this one knows all policies.
type policies struct {
	log     *slog.Logger
	table   policyTable
	metrics *metrics
	compile func(*cluster.Snapshot, policy.Local) (*policy.Tables, []policy.Problem)
	wake    chan struct{} // room for one
	// fresh says that the table began empty.
	fresh bool
	// changed is told after each pass, filledFirst after the one that has first filled the tables. They must not block.
	changed, filledFirst func()

	inputs policyInputs
	// holding is held while addresses are closed and released, so that the table hears of it in the order of the inputs.
	holding sync.Mutex
	// mu is held during a pass, of which there is one at a time, and guards what follows. A pass takes no other lock of the agent's.
	mu sync.Mutex
	// done is the number of the inputs of the last pass, and written their snapshot.
	done    uint64
	written *cluster.Snapshot
	states  policyStates

	outcomeMu sync.Mutex // nobody who asks waits for a pass
	outcome   policyOutcome
}

// policyInputs are the newest of what a pass depends on.
type policyInputs struct {
	mu       sync.Mutex
	snapshot *cluster.Snapshot // nil until the source has delivered one
	// located says that a reconciliation has found out the addresses in local.
	located bool
	local   policy.Local
	// held are addresses that were closed for pods that were added, each with the number that the inputs had then. A pass with these or later
	// inputs releases them: its tables know the pod, or that it is gone.
	held map[netip.Addr]uint64
	// number counts changes.
	number uint64
}

// policyOutcome is what the last pass has come to.
type policyOutcome struct {
	// filled says that the tables have had all policies since this agent has started.
	filled bool
	// failure is what could not be written, compileProblems are those that the compiler has found, and problems these with what did not fit.
	failure                   error
	compileProblems, problems []policy.Problem
	// closed says why pods here are closed.
	closed map[closedPod]string
	// tables are those that were written last, and snapshot with local what they were made of.
	tables   *policy.Tables
	snapshot *cluster.Snapshot
	local    policy.Local
	states   policyStates
}

func newPolicies(table policyTable, compile func(*cluster.Snapshot, policy.Local) (*policy.Tables, []policy.Problem), unlabelled bool, m *metrics, log *slog.Logger) *policies {
	p := &policies{log: log, table: table, compile: compile, metrics: m, wake: make(chan struct{}, 1), changed: func() {}, filledFirst: func() {}, states: policyStates{}}
	p.inputs.local.Unlabelled = unlabelled
	p.inputs.held = map[netip.Addr]uint64{}
	return p
}

// deliver, setNode and setPods hand over what is new and return at once.
func (p *policies) deliver(snapshot *cluster.Snapshot) {
	p.take(func(in *policyInputs) (isNew bool) {
		isNew = in.snapshot == nil || !samePolicies(in.snapshot, snapshot)
		in.snapshot = snapshot
		return isNew
	})
}

func (p *policies) setNode(addresses []netip.Addr) {
	p.take(func(in *policyInputs) (isNew bool) {
		isNew = !in.located || !slices.Equal(in.local.Addresses, addresses)
		in.local.Addresses, in.located = addresses, true
		return isNew
	})
}

func (p *policies) setPods(pods []policy.LocalPod) {
	p.take(func(in *policyInputs) (isNew bool) {
		isNew = !slices.EqualFunc(in.local.Pods, pods, func(x, y policy.LocalPod) bool {
			return x.Pod == y.Pod && x.UID == y.UID && slices.Equal(x.Addresses, y.Addresses)
		})
		in.local.Pods = pods
		return isNew
	})
}

func (p *policies) take(change func(*policyInputs) (isNew bool)) (number uint64) {
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	if !change(&p.inputs) {
		return p.inputs.number
	}
	p.inputs.number++
	select {
	case p.wake <- struct{}{}:
	default: // the pass that is due will see it
	}
	return p.inputs.number
}

// samePolicies tells whether two snapshots are the same to policies. Nodes tell whose addresses are this one's.
func samePolicies(a, b *cluster.Snapshot) bool {
	return cluster.Same(a.NetworkPolicies, b.NetworkPolicies) && cluster.Same(a.Namespaces, b.Namespaces) && cluster.Same(a.Pods, b.Pods) &&
		cluster.Same(a.Nodes, b.Nodes) && slices.Equal(a.Unknown, b.Unknown) && slices.Equal(a.Partial, b.Partial)
}

// isolates tells whether policies may select a pod in a direction, as far as is known now.
func (p *policies) isolates(namespace string) (ingress, egress bool) {
	p.inputs.mu.Lock()
	snapshot := p.inputs.snapshot
	p.inputs.mu.Unlock()
	if snapshot == nil || !knownPolicies(snapshot) {
		return true, true
	}
	begin, _ := slices.BinarySearchFunc(snapshot.NetworkPolicies, namespace, func(n *cluster.NetworkPolicy, namespace string) int {
		return strings.Compare(n.Namespace, namespace)
	})
	for _, n := range snapshot.NetworkPolicies[begin:] {
		if n.Namespace != namespace {
			break
		}
		ingress, egress = ingress || n.IsolatesIngress, egress || n.IsolatesEgress
	}
	return ingress, egress
}

// close closes a pod that is being added until a pass that knows of it, and gives the number of that: see passAt.
func (p *policies) close(pods []policy.LocalPod, addresses []netip.Addr) (number uint64, err error) {
	p.holding.Lock()
	defer p.holding.Unlock()
	number = p.take(func(in *policyInputs) bool {
		in.local.Pods = pods
		for _, a := range addresses {
			in.held[a] = in.number + 1
		}
		return true
	})
	return number, p.table.Close(addresses)
}

// current is what the last pass has come to.
func (p *policies) current() policyOutcome {
	p.outcomeMu.Lock()
	defer p.outcomeMu.Unlock()
	return p.outcome
}

// run makes a pass whenever something is new, and again after one that has failed, until ctx ends.
func (p *policies) run(ctx context.Context) error {
	retry, retryFull := time.NewTicker(policyRetry), time.NewTicker(policyRetryFull)
	defer retry.Stop()
	defer retryFull.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-retry.C:
			if failure := p.current().failure; failure == nil || ofSets(failure) {
				continue
			}
		case <-retryFull.C:
			if p.current().failure == nil {
				continue
			}
		}
		_ = p.pass() // what failed is in the outcome
	}
}

// passAt makes a pass with inputs of this number, unless there has been one.
func (p *policies) passAt(number uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done >= number {
		return p.current().failure
	}
	return p.passLocked()
}

// pass makes the tables hold what is known now, and gives what could not be written.
func (p *policies) pass() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passLocked()
}

func (p *policies) passLocked() error {
	p.inputs.mu.Lock()
	snapshot, local, located, number := p.inputs.snapshot, p.inputs.local, p.inputs.located, p.inputs.number
	held := maps.Clone(p.inputs.held)
	p.inputs.mu.Unlock()
	if !located {
		return nil
	}
	if snapshot == nil || !knownPolicies(snapshot) {
		return p.admitNode(local.Addresses)
	}
	local.Pods = recognised(snapshot, local.Pods)
	begin := time.Now()
	last := p.current()
	tables, problems := last.tables, last.compileProblems
	if number != p.done { // else it is only tried again
		tables, problems = p.compile(snapshot, local)
	}
	compiled := time.Now()
	changed, err := p.table.Sync(tables)
	if err == nil || ofSets(err) {
		err = errors.Join(err, p.releaseHeld(held))
	}
	p.done = number
	p.metrics.policiesApplied(compiled.Sub(begin), time.Since(compiled), err)
	if err == nil && changed > 0 && snapshot != p.written && !snapshot.Since.IsZero() {
		p.metrics.policyChanges.Observe(time.Since(snapshot.Since).Seconds())
	}
	p.written = snapshot
	p.log.Debug("NetworkPolicies written", "changed", changed, "compile", compiled.Sub(begin), "apply", time.Since(compiled), "error", err)
	p.conclude(policyOutcome{failure: err, compileProblems: problems, tables: tables, snapshot: snapshot, local: local})
	return err
}

// ofSets tells whether an error is that of some sets of rules, whose pods are closed, and not of the tables themselves.
func ofSets(err error) bool {
	var some *datapath.SyncError
	return errors.As(err, &some)
}

// admitNode lets this node reach the pods that are closed while policies are not known, if no earlier agent has done so.
func (p *policies) admitNode(own []netip.Addr) error {
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

// releaseHeld opens what was closed for pods that were added: the tables in force know them. An address that has been
// closed again since is another pod's.
func (p *policies) releaseHeld(held map[netip.Addr]uint64) error {
	p.holding.Lock()
	defer p.holding.Unlock()
	p.inputs.mu.Lock()
	maps.DeleteFunc(held, func(a netip.Addr, number uint64) bool { return p.inputs.held[a] != number })
	p.inputs.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	if err := p.table.Release(slices.Collect(maps.Keys(held))); err != nil {
		return err
	}
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	for a := range held {
		delete(p.inputs.held, a)
	}
	return nil
}

// policyKinds are what policies are compiled from.
var policyKinds = cluster.Kinds{cluster.KindNetworkPolicy, cluster.KindNamespace, cluster.KindPod}

// knownPolicies tells whether a snapshot has all policies, and all that they select from: a pod without its labels is one that they do not
// select. Before, what an earlier agent has put into force stays, and pods that are added are closed.
func knownPolicies(s *cluster.Snapshot) bool {
	return !slices.ContainsFunc(policyKinds, s.Unknown.Has) && !slices.ContainsFunc(policyKinds, s.Partial.Has)
}

// conclude tells what has come of a pass to those who ask, and what is new of it to the log.
func (p *policies) conclude(now policyOutcome) {
	before := p.current()
	now.closed = now.closedPods()
	now.problems = slices.Concat(now.compileProblems, now.unfinished())
	if failure := now.failure; failure != nil && (before.failure == nil || before.failure.Error() != failure.Error()) {
		p.log.Error("NetworkPolicies cannot be written", "error", failure)
	}
	for _, problem := range now.problems {
		if !slices.ContainsFunc(before.problems, func(b policy.Problem) bool { return b.Text == problem.Text }) {
			p.log.Warn("problem", "problem", problem.Text)
		}
	}
	now.filled = before.filled || now.failure == nil || ofSets(now.failure)
	if now.filled && !before.filled {
		p.log.Info("NetworkPolicies are in force", "policies", len(now.snapshot.NetworkPolicies), "pods", len(now.tables.Pods))
	}
	p.states = p.states.after(now, time.Now())
	now.states = p.states
	p.outcomeMu.Lock()
	p.outcome = now
	p.outcomeMu.Unlock()
	p.changed()
	if now.filled && !before.filled {
		p.filledFirst()
	}
}

// governs tells whether policies of the last pass isolate a pod, or one that had one of its addresses before.
func (o policyOutcome) governs(addresses []netip.Addr) bool {
	return o.tables != nil && slices.ContainsFunc(addresses, func(a netip.Addr) bool { _, is := o.tables.Pods[a]; return is })
}

// governsIngress tells whether policies of the last pass isolate a pod from those who send to it.
func (o policyOutcome) governsIngress(addresses []netip.Addr) bool {
	return o.tables != nil && slices.ContainsFunc(addresses, func(a netip.Addr) bool { return o.tables.Pods[a].Ingress != policy.NotIsolated })
}

// all are the problems of policies, one sentence each, but for those of policies that are not understood: the source names them.
func (o policyOutcome) all() (all []string) {
	if o.failure != nil && !ofSets(o.failure) { // what does not fit is among the problems
		all = append(all, strings.Split(o.failure.Error(), "\n")...)
	}
	for _, problem := range o.problems {
		if policyOf(o.snapshot, problem.Policy).Wrong == "" {
			all = append(all, problem.Text)
		}
	}
	return all
}

// errPoliciesMissing keeps the programs of an earlier agent in place.
var errPoliciesMissing = errors.New("programs that put NetworkPolicies into force wait for the cluster's, without which pods would be open")
