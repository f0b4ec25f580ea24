package measure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
)

// policyChangePause is from one change to the next: an agent has been done with the one before for long.
const policyChangePause = 50 * time.Millisecond

// policyHappenings are the changes, in pairs that undo each other.
var policyHappenings = []result.PolicyChange{result.LabelDenies, result.LabelAllows, result.PolicyAdded, result.PolicyRemoved}

// timesChanges says whether changes of a network are timed: of Beeline among many policies, and of the other one that
// enforces any, which gets as many for that.
func timesChanges(c network.PolicyEnforcer) bool {
	return c.Present() == policies.AmongMany || !c.Watches()
}

// changes times how long it takes until new connections obey, network by network, among many policies, and what it takes
// to make of policies what is enforced.
func (b *policyBench) changes(ctx context.Context) error {
	if b.plan.Changes == 0 {
		return nil
	}
	for _, l := range b.testbeds {
		if l.policed == nil || !timesChanges(l.policed) {
			continue
		}
		c := result.PolicyCompile{Network: l.network.Name(), Policies: policies.Many, Pods: policies.Many, LocalPods: policies.LocalOthers}
		if err := b.compile(ctx, l, &c); err != nil {
			b.progress.Note("compiling by %s: %v", l.network.Name(), err)
			c.Error = err.Error()
		}
		b.progress.Advance(time.Duration(b.plan.Scratches) * aScratch)
		if err := b.changesOf(ctx, l, &c); err != nil {
			b.progress.Note("changes of %s: %v", l.network.Name(), err)
			c.Error = strings.TrimPrefix(c.Error+"; "+err.Error(), "; ")
		}
		b.progress.Advance(b.plan.changesTake(l.policed))
		b.run.Policy.Compiled = append(b.run.Policy.Compiled, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// compile times how everything is made from nothing.
func (b *policyBench) compile(ctx context.Context, l *policyTestbed, c *result.PolicyCompile) error {
	b.progress.Step("compiling %d policies: %s", policies.Many, l.network.Name())
	if l.policed.Watches() {
		return l.compiledByAgent(ctx, b.plan, c)
	}
	return l.compiledHere(ctx, b.plan, c)
}

// changesOf are those of one network.
func (b *policyBench) changesOf(ctx context.Context, l *policyTestbed, compiled *result.PolicyCompile) (err error) {
	if err := l.amongMany(ctx); err != nil {
		return err
	}
	c, err := newPolicyChanges(ctx, l)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return err
	}
	for i := 0; i < len(policyHappenings); i += 2 {
		pair := [2]result.PolicyChange(policyHappenings[i : i+2])
		b.progress.Step("timing changes: %s, %s and %s", l.network.Name(), pair[0], pair[1])
		agents := l.policed.Watches() && pair[0] == result.LabelDenies
		from := 0
		if agents {
			if from, err = l.logSize(); err != nil {
				return err
			}
		}
		b.run.Policy.Convergence = append(b.run.Policy.Convergence, c.time(ctx, pair, b.plan)...)
		if agents {
			if err := l.changedByAgent(from, compiled); err != nil {
				return err
			}
		}
	}
	return nil
}

// policyChanges are those of one testbed: a client whose label lets it connect to one pod, and another pod that no policy
// selects until one is added.
type policyChanges struct {
	testbed       *policyTestbed
	watcher       policies.Pod
	watched, bare netip.AddrPort
	client        *convergence.Client
	closers       []func() error
}

var (
	watcherLabels = map[string]string{"watcher": "yes"}
	watchedLabels = map[string]string{"watched": "yes"}
	bareLabels    = map[string]string{"watched": "later"}
)

// newPolicyChanges adds the pods. The result is to be closed also after an error.
func newPolicyChanges(ctx context.Context, l *policyTestbed) (*policyChanges, error) {
	c := &policyChanges{testbed: l}
	watcher, err := l.addPod(ctx, 0, policies.Pod{Namespace: policies.Default, Name: "watcher", Labels: watcherLabels})
	if err != nil {
		return c, err
	}
	c.watcher = l.known["watcher"]
	for name, labels := range map[string]map[string]string{"watched": watchedLabels, "bare": bareLabels} {
		pod, err := l.addPod(ctx, 1, policies.Pod{Namespace: policies.Default, Name: name, Labels: labels})
		if err != nil {
			return c, err
		}
		at := netip.AddrPortFrom(pod.Addresses[0], echoPort)
		listener, err := convergence.Listen(ctx, l.lab.Place(pod), at, 0)
		if err != nil {
			return c, err
		}
		c.closers = append(c.closers, listener.Close)
		if name == "bare" {
			c.bare = at
		} else {
			c.watched = at
		}
	}
	allow := policies.Policy(policies.Default, "watched", watchedLabels, policies.Ingress(policies.TCPPorts(echoPort), policies.Pods(watcherLabels, nil)), nil)
	if err := l.put(ctx, allow); err != nil {
		return c, err
	}
	program, err := network.Program()
	if err != nil {
		return c, err
	}
	if c.client, err = convergence.Start(l.lab.Place(watcher), program); err != nil {
		return c, err
	}
	c.closers = append(c.closers, c.client.Close)
	for _, to := range []netip.AddrPort{c.watched, c.bare} {
		if _, err := c.client.Reach(ctx, to, convergence.Anybody, changeLimit); err != nil {
			return c, fmt.Errorf("reach %s before any change: %w", to, err)
		}
	}
	return c, nil
}

func (c *policyChanges) close() error {
	var errs []error
	for _, closer := range c.closers {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// time makes changes of two kinds that undo each other, in turn.
func (c *policyChanges) time(ctx context.Context, kinds [2]result.PolicyChange, p PolicyPlan) []result.PolicyConvergence {
	var list []result.PolicyConvergence
	for _, what := range kinds {
		list = append(list, result.PolicyConvergence{
			Network: c.testbed.network.Name(), Change: what, Policies: policies.Many, Pods: policies.Many, Milliseconds: []float64{},
		})
	}
	for began := time.Now(); len(list[1].Milliseconds) < p.Changes && time.Since(began) < p.changesFor(c.testbed.policed); {
		for i, what := range kinds {
			took, err := c.one(ctx, what)
			if err != nil {
				list[i].Error = err.Error()
				return list
			}
			list[i].Milliseconds = append(list[i].Milliseconds, float64(took)/float64(time.Millisecond))
			select {
			case <-ctx.Done():
				list[i].Error = ctx.Err().Error()
				return list
			case <-time.After(policyChangePause):
			}
		}
	}
	return list
}

// one makes one change, with a client that makes connections all the time, and gives the time until new ones obey.
func (c *policyChanges) one(ctx context.Context, what result.PolicyChange) (time.Duration, error) {
	deny := policies.Policy(policies.Default, "later", bareLabels, []networkingv1.NetworkPolicyIngressRule{}, nil)
	labelled, without := c.watcher, c.watcher
	without.Labels = map[string]string{"watcher": "no"}
	to, want := c.watched, convergence.Anybody
	change := func(objects ...runtime.Object) func() error {
		return func() error { return c.testbed.put(ctx, objects...) }
	}
	var happen func() error
	switch what {
	case result.LabelDenies:
		happen, want = change(without.Object()), convergence.Nobody
	case result.LabelAllows:
		happen = change(labelled.Object())
	case result.PolicyAdded:
		happen, want, to = change(deny), convergence.Nobody, c.bare
	case result.PolicyRemoved:
		happen, to = func() error { return c.testbed.remove(ctx, deny) }, c.bare
	}
	took, err := timed(ctx, c.client, to, want, happen)
	// A connection in the making when the change came may be the first that nobody answers.
	return max(0, took), err
}
