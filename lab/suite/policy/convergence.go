package policy

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
)

// changePause is from one change to the next: an agent has long applied the one before.
const changePause = 50 * time.Millisecond

// changeKinds are the changes, in pairs that undo each other.
var changeKinds = []result.PolicyChange{result.LabelDenies, result.LabelAllows, result.PolicyAdded, result.PolicyRemoved}

// timesChanges reports whether changes of a network are timed: of Beeline among many policies, and of the other network
// that enforces any, which gets as many for that.
func timesChanges(c network.PolicyEnforcer) bool {
	return c.Present() == policies.AmongMany || !c.Watches()
}

// changes times, network by network and among many policies, how long it takes until new connections follow a change,
// and to compile all policies.
func (s *Suite) changes(ctx context.Context, b *round.Bench) error {
	if s.Changes == 0 {
		return nil
	}
	for _, m := range s.Members {
		if m.enforcer == nil || !timesChanges(m.enforcer) {
			continue
		}
		c := result.PolicyCompile{Network: m.Name(), Policies: policies.Many, Pods: policies.Many, LocalPods: policies.LocalOthers}
		if err := s.compile(ctx, b, m, &c); err != nil {
			b.Progress.Note("compiling by %s: %v", m.Name(), err)
			c.Error = err.Error()
		}
		b.Progress.Advance(time.Duration(s.Compiles) * compileTime)
		if err := s.changesOf(ctx, b, m, &c); err != nil {
			b.Progress.Note("changes of %s: %v", m.Name(), err)
			c.Error = strings.TrimPrefix(c.Error+"; "+err.Error(), "; ")
		}
		b.Progress.Advance(s.changesTake(m.enforcer))
		b.Result.Policy.Compiled = append(b.Result.Policy.Compiled, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// compile times how all policies are compiled from nothing.
func (s *Suite) compile(ctx context.Context, b *round.Bench, m *member, c *result.PolicyCompile) error {
	b.Progress.Step("compiling %d policies: %s", policies.Many, m.Name())
	if m.enforcer.Watches() {
		return m.compiledByAgent(ctx, s.Compiles, c)
	}
	return m.compiledHere(ctx, s.Compiles, c)
}

// changesOf are those of one network.
func (s *Suite) changesOf(ctx context.Context, b *round.Bench, m *member, compiled *result.PolicyCompile) (err error) {
	if err := m.amongMany(ctx); err != nil {
		return err
	}
	c, err := newChanges(ctx, m)
	if err != nil {
		return err
	}
	for i := 0; i < len(changeKinds); i += 2 {
		pair := [2]result.PolicyChange(changeKinds[i : i+2])
		b.Progress.Step("timing changes: %s, %s and %s", m.Name(), pair[0], pair[1])
		agents := m.enforcer.Watches() && pair[0] == result.LabelDenies
		from := 0
		if agents {
			if from, err = m.logSize(); err != nil {
				return err
			}
		}
		b.Result.Policy.Convergence = append(b.Result.Policy.Convergence, c.time(ctx, pair, s.Changes, s.changesFor(m.enforcer))...)
		if agents {
			if err := m.changedByAgent(from, compiled); err != nil {
				return err
			}
		}
	}
	return nil
}

// changes are those of one network: a client whose label lets it connect to one pod, and another pod that no policy
// selects until one is added.
type changes struct {
	*member
	watcher       policies.Pod
	watched, bare netip.AddrPort
	client        *convergence.Client
}

var (
	watcherLabels = map[string]string{"watcher": "yes"}
	watchedLabels = map[string]string{"watched": "yes"}
	bareLabels    = map[string]string{"watched": "later"}
)

// newChanges adds the pods.
func newChanges(ctx context.Context, m *member) (c *changes, err error) {
	c = &changes{member: m, watcher: policies.Pod{Namespace: policies.Default, Name: "watcher", Labels: watcherLabels}}
	watcher, err := m.AddPod(ctx, 0, c.watcher)
	if err != nil {
		return nil, err
	}
	c.watcher.Node, c.watcher.Addresses = watcher.Node, watcher.Addresses
	if c.watched, err = c.backend(ctx, "watched", watchedLabels); err != nil {
		return nil, err
	}
	if c.bare, err = c.backend(ctx, "bare", bareLabels); err != nil {
		return nil, err
	}
	allow := policies.Policy(policies.Default, "watched", watchedLabels, policies.Ingress(policies.TCPPorts(suite.EchoPort), policies.Pods(watcherLabels, nil)), nil)
	if err := m.Put(ctx, allow); err != nil {
		return nil, err
	}
	if c.client, err = m.Connect(watcher); err != nil {
		return nil, err
	}
	for _, to := range []netip.AddrPort{c.watched, c.bare} {
		if _, err := c.client.Reach(ctx, to, convergence.AnyBackend, convergence.ChangeLimit); err != nil {
			return nil, fmt.Errorf("reach %s before any change: %w", to, err)
		}
	}
	return c, nil
}

// backend adds a pod that answers.
func (c *changes) backend(ctx context.Context, name string, labels map[string]string) (at netip.AddrPort, err error) {
	pod, err := c.AddPod(ctx, 1, policies.Pod{Namespace: policies.Default, Name: name, Labels: labels})
	if err != nil {
		return at, err
	}
	return c.Listen(ctx, pod, suite.EchoPort, 0)
}

// time makes changes of two kinds that undo each other, in turn.
func (c *changes) time(ctx context.Context, kinds [2]result.PolicyChange, most int, within time.Duration) []result.PolicyConvergence {
	change := func(i int) func() (time.Duration, error) {
		return func() (time.Duration, error) { return c.one(ctx, kinds[i]) }
	}
	times, errs := convergence.Repeat(ctx, most, within, changePause, change(0), change(1))
	var list []result.PolicyConvergence
	for i, what := range kinds {
		r := result.PolicyConvergence{Network: c.Name(), Change: what, Policies: policies.Many, Pods: policies.Many, Milliseconds: times[i]}
		if errs[i] != nil {
			r.Error = errs[i].Error()
		}
		list = append(list, r)
	}
	return list
}

// one makes one change, with a client that makes connections all the time, and gives the time until new ones obey.
func (c *changes) one(ctx context.Context, what result.PolicyChange) (time.Duration, error) {
	deny := policies.Policy(policies.Default, "later", bareLabels, []networkingv1.NetworkPolicyIngressRule{}, nil)
	labelled, without := c.watcher, c.watcher
	without.Labels = map[string]string{"watcher": "no"}
	to, want := c.watched, convergence.AnyBackend
	change := func(objects ...runtime.Object) func() error {
		return func() error { return c.Put(ctx, objects...) }
	}
	var happen func() error
	switch what {
	case result.LabelDenies:
		happen, want = change(without.Object()), convergence.NoBackend
	case result.LabelAllows:
		happen = change(labelled.Object())
	case result.PolicyAdded:
		happen, want, to = change(deny), convergence.NoBackend, c.bare
	case result.PolicyRemoved:
		happen, to = func() error { return c.Delete(ctx, deny) }, c.bare
	}
	took, err := convergence.Time(ctx, c.client, to, want, happen)
	// A connection that began before the change may be the first without an answer.
	return max(0, took), err
}
