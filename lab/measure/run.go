package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
)

// ErrNothing says that a run gave no figure: no network came up, or the gate kept no round.
var ErrNothing = errors.New("could not measure")

// bench is a run under way.
type bench struct {
	plan     Plan
	progress *Progress
	run      *result.Run
	testbeds []*Testbed
	threads  []int // ksoftirqd
}

// Run carries out a plan. The result is never nil: what was measured before an error, or before the context
// ended, is in it, with its summary. Nothing that was brought up is left.
func Run(ctx context.Context, p Plan, progress *Progress) (run *result.Run, err error) {
	b := &bench{plan: p, progress: progress, threads: softirqThreads(), run: newRun(p)}
	defer func() { Finish(b.run) }()
	if err := p.Validate(); err != nil {
		return b.run, err
	}
	defer func() { err = errors.Join(err, b.closeTestbeds()) }()
	if err := b.openTestbeds(ctx); err != nil {
		return b.run, err
	}
	b.describe(ctx)
	if err := b.traffic(ctx); err != nil {
		return b.run, err
	}
	if err := b.footprints(ctx); err != nil {
		return b.run, err
	}
	if Kept(b.run) == 0 {
		return b.run, fmt.Errorf("%w: the gate discarded all %d rounds", ErrNothing, len(b.run.Rounds))
	}
	return b.run, nil
}

func newRun(p Plan) *result.Run {
	run := NewRun(p.Schedule)
	run.Settings.MTU = p.MTU
	return run
}

func numCPU() int { return len(allowed()) }

// openTestbeds brings up every network that can be.
func (b *bench) openTestbeds(ctx context.Context) error {
	takes := func(network.Network) time.Duration { return bringUp }
	return b.openEach(ctx, b.plan.Networks, takes, func(c network.Network) (*Testbed, error) { return openTestbed(ctx, c, b.plan) })
}

// openEach brings networks up, which take so long, about; one that cannot be is listed with the reason.
func (b *bench) openEach(ctx context.Context, networks []network.Network, takes func(network.Network) time.Duration, open func(network.Network) (*Testbed, error)) error {
	for _, c := range networks {
		record := result.Network{Name: c.Name(), Description: c.Description(), Unsupported: c.Unsupported()}
		if record.Unsupported == "" {
			b.progress.Step("bringing up %s", c.Name())
			l, err := open(c)
			if err == nil { // and so to be closed, whatever follows
				b.testbeds = append(b.testbeds, l)
			}
			switch {
			case ctx.Err() != nil:
				return errors.Join(ctx.Err(), err)
			case err != nil:
				b.progress.Note("%s does not come up: %v", c.Name(), err)
				record.Unsupported = "does not come up: " + err.Error()
			default:
				record = l.record(ctx)
			}
		} else {
			b.progress.Note("%s: %s", c.Name(), record.Unsupported)
		}
		b.run.Networks = append(b.run.Networks, record)
		b.progress.Advance(takes(c))
	}
	if len(b.testbeds) == 0 {
		return fmt.Errorf("%w: no network came up", ErrNothing)
	}
	return nil
}

func (b *bench) closeTestbeds() error {
	var errs []error
	for _, l := range b.testbeds {
		b.progress.Status("taking down %s", l.network.Name())
		errs = append(errs, l.close())
		b.progress.Advance(takeDown)
	}
	b.progress.Clear()
	return errors.Join(errs...)
}

func (b *bench) cgroups() []string {
	var list []string
	for _, l := range b.testbeds {
		list = append(list, l.cgroups()...)
	}
	return list
}

// traffic makes everything that runs workloads, with this process out of their way.
func (b *bench) traffic(ctx context.Context) error {
	release, err := stayOn(allowed()[0])
	if err != nil {
		return err
	}
	defer release()
	var subjects []Subject
	for _, l := range b.testbeds {
		subjects = append(subjects, &labSubject{b, l})
	}
	noise := &labNoise{cgroups: b.cgroups(), threads: b.threads}
	if err := b.plan.Schedule.Make(ctx, subjects, noise, b.run, b.progress); err != nil {
		return err
	}
	return b.programs(ctx)
}

// labSubject is a testbed in the rounds.
type labSubject struct {
	bench   *bench
	testbed *Testbed
}

func (e *labSubject) Name() string { return e.testbed.network.Name() }

func (e *labSubject) Sample(ctx context.Context, cell Cell, length time.Duration) result.Sample {
	return e.bench.sample(ctx, e.testbed, cell, length)
}

// labNoise watches this machine.
type labNoise struct {
	cgroups []string
	threads []int
	watch   *watch
}

func (n *labNoise) Begin(context.Context) (err error) {
	n.watch, err = startWatch(n.cgroups, n.threads)
	return err
}

func (n *labNoise) End(context.Context) (steal, foreign float64, err error) { return n.watch.stop() }

func (n *labNoise) Others() map[string]time.Duration { return n.watch.others() }
