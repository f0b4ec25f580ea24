package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
)

// PolicyPlan is everything that is decided before a run of the policy bench.
type PolicyPlan struct {
	Schedule
	Networks []network.Network
	// MTU is that of the wire, in bytes.
	MTU int
	// Truth says that every network that enforces policies is asked what it makes of them.
	Truth bool
	// Changes of each kind are made for each network that has them timed, as many as begin within ChangesFor.
	Changes    int
	ChangesFor time.Duration
	// Scratches is how often everything is compiled from nothing, where that is timed.
	Scratches int
}

// Validate names everything that cannot be.
func (p PolicyPlan) Validate() error {
	var errs []error
	if len(p.Networks) == 0 {
		errs = append(errs, errors.New("no networks"))
	}
	if p.IPv6 {
		errs = append(errs, errors.New("the policy bench has IPv4 only"))
	}
	errs = append(errs, validateMTU(p.MTU), p.Schedule.Validate())
	return errors.Join(errs...)
}

// HasBaseline says whether there is what ratios are formed with.
func (p PolicyPlan) HasBaseline() bool { return Plan{Networks: p.Networks}.HasBaseline() }

// subjects are the names that take part in each round when every network comes up.
func (p PolicyPlan) subjects() []string {
	var names []string
	for _, c := range p.Networks {
		if c.Unsupported() == "" {
			names = append(names, c.Name())
		}
	}
	return withAgain(names)
}

// What the parts take, about, on a machine of two cores with nothing else to do.
const (
	bringUpPolicies = 3 * time.Second
	aPodBeside      = 60 * time.Millisecond
	aTruth          = 6 * time.Second
	aPolicyChange   = 150 * time.Millisecond
	aScratch        = 3 * time.Second
)

// Estimate is how long the run takes, about, when no round is discarded.
func (p PolicyPlan) Estimate() time.Duration {
	return p.Schedule.Estimate(len(p.subjects())) + p.before() + p.after()
}

// before is the time of everything before rounds.
func (p PolicyPlan) before() (total time.Duration) {
	for _, c := range p.Networks {
		if c.Unsupported() == "" {
			total += p.bringUp(c)
		}
	}
	return total
}

// bringUp is how long one network takes to come up.
func (p PolicyPlan) bringUp(c network.Network) time.Duration {
	if policed, ok := c.(network.PolicyEnforcer); ok && policed.Watches() && policed.Present() == policies.AmongMany {
		return bringUpPolicies + policies.LocalOthers*aPodBeside
	}
	return bringUpPolicies
}

// after is the time of everything after rounds.
func (p PolicyPlan) after() (total time.Duration) {
	for _, c := range p.Networks {
		if c.Unsupported() != "" {
			continue
		}
		total += takeDown
		policed, ok := c.(network.PolicyEnforcer)
		if !ok {
			continue
		}
		if p.Truth {
			total += aTruth
		}
		if timesChanges(policed) {
			total += p.changesTake(policed) + time.Duration(p.Scratches)*aScratch
		}
	}
	return total
}

// changesFor is how long changes of a pair of kinds may begin: half as long for those who begin anew with each, which are slow.
func (p PolicyPlan) changesFor(c network.PolicyEnforcer) time.Duration {
	if !c.Watches() {
		return p.ChangesFor / 2
	}
	return p.ChangesFor
}

// changesTake is how long all changes of one network take, about.
func (p PolicyPlan) changesTake(c network.PolicyEnforcer) time.Duration {
	kinds := time.Duration(len(policyHappenings))
	return min(kinds/2*p.changesFor(c), kinds*time.Duration(p.Changes)*aPolicyChange)
}

// policyBench is a run of the policy bench under way.
type policyBench struct {
	*bench
	plan     PolicyPlan
	testbeds []*policyTestbed
}

// RunPolicy carries out a plan of the policy bench. The result is never nil: what was measured before an error, or before
// the context ended, is in it, with its summary. Nothing that was brought up is left.
func RunPolicy(ctx context.Context, p PolicyPlan, progress *Progress) (run *result.Run, err error) {
	run = NewRun(p.Schedule)
	run.Settings.Suite, run.Settings.MTU = "policy", p.MTU
	run.Policy = &result.Policy{Policies: policies.Many, Pods: policies.Many, IPBlocks: policies.MostBlocks}
	b := &policyBench{bench: &bench{progress: progress, threads: softirqThreads(), run: run}, plan: p}
	defer func() { Finish(run) }()
	if err := p.Validate(); err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return run, err
	}
	b.describe(ctx)
	for _, part := range []func(context.Context) error{b.traffic, b.truth, b.changes} {
		if err := part(ctx); err != nil {
			return run, err
		}
	}
	if Kept(run) == 0 {
		return run, fmt.Errorf("%w: the gate discarded all %d rounds", ErrNothing, len(run.Rounds))
	}
	return run, nil
}

// open brings up every network that can be, and notes what those that have tables have in them.
func (b *policyBench) open(ctx context.Context) error {
	return b.openEach(ctx, b.plan.Networks, b.plan.bringUp, func(c network.Network) (*Testbed, error) {
		l, err := openPolicyTestbed(ctx, c, b.plan)
		if err != nil {
			return nil, err
		}
		b.testbeds = append(b.testbeds, l)
		if l.tables != nil {
			b.run.Policy.Tables = append(b.run.Policy.Tables, *l.tables)
		}
		return l.Testbed, nil
	})
}

// traffic makes the rounds, with this process out of their way.
func (b *policyBench) traffic(ctx context.Context) error {
	release, err := stayOn(allowed()[0])
	if err != nil {
		return err
	}
	defer release()
	var subjects []Subject
	for _, l := range b.testbeds {
		subjects = append(subjects, &policySubject{l})
	}
	return b.plan.Make(ctx, subjects, &labNoise{cgroups: b.cgroups(), threads: b.threads}, b.run, b.progress)
}

// policySubject is a testbed in the rounds.
type policySubject struct{ testbed *policyTestbed }

func (e *policySubject) Name() string { return e.testbed.network.Name() }

func (e *policySubject) Sample(ctx context.Context, cell Cell, length time.Duration) result.Sample {
	return e.testbed.sample(ctx, cell, length)
}

// truth asks every network that enforces policies what it makes of the same ones.
func (b *policyBench) truth(ctx context.Context) error {
	if !b.plan.Truth {
		return nil
	}
	for _, l := range b.testbeds {
		if l.policed == nil {
			continue
		}
		b.progress.Step("which connections work: %s", l.network.Name())
		answers, err := l.truth(ctx)
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		t := result.Connectivity{Network: l.network.Name(), Connections: answers}
		if err != nil {
			b.progress.Note("which connections work with %s: %v", t.Network, err)
			t.Error = err.Error()
		}
		wrong, unknown := judged(answers)
		if wrong > 0 {
			b.progress.Note("%s: %d of %d connections are not as they have to be", t.Network, wrong, len(answers))
		}
		if unknown > 0 {
			b.progress.Note("%s: of %d of %d connections it is not known whether they work", t.Network, unknown, len(answers))
		}
		b.run.Policy.Connectivity = append(b.run.Policy.Connectivity, t)
		b.progress.Advance(aTruth)
	}
	return nil
}

// judged counts the answers that are not as they have to be, and those that are not known.
func judged(answers []result.Connection) (wrong, unknown int) {
	for _, a := range answers {
		switch {
		case a.Unknown != "":
			unknown++
		case a.Connected != a.Allowed:
			wrong++
		}
	}
	return wrong, unknown
}

func (b *policyBench) close() error {
	var errs []error
	for _, l := range b.testbeds {
		b.progress.Step("taking down %s", l.network.Name())
		errs = append(errs, l.close())
		b.progress.Advance(takeDown)
	}
	b.progress.Clear()
	return errors.Join(errs...)
}
