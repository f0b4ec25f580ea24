package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// ErrNothing says that a run gave no figure: no contender came up, or the gate kept no round.
var ErrNothing = errors.New("could not measure")

// bench is a run under way.
type bench struct {
	plan     Plan
	progress *Progress
	run      *result.Run
	lanes    []*lane
	threads  []int // ksoftirqd
}

// Run carries out a plan. The result is never nil: what was measured before an error, or before the context
// ended, is in it, with its summary. Nothing that was brought up is left.
func Run(ctx context.Context, p Plan, progress *Progress) (run *result.Run, err error) {
	b := &bench{plan: p, progress: progress, threads: softirqThreads(), run: newRun(p)}
	defer func() {
		b.run.Finished = time.Now()
		b.run.Summary = stats.Summarize(b.run)
		b.run.CrossChecks = stats.CrossCheck(b.run)
	}()
	if err := p.Validate(); err != nil {
		return b.run, err
	}
	defer func() { err = errors.Join(err, b.closeLanes()) }()
	if err := b.openLanes(ctx); err != nil {
		return b.run, err
	}
	b.describe(ctx)
	if err := b.traffic(ctx); err != nil {
		return b.run, err
	}
	if err := b.footprints(ctx); err != nil {
		return b.run, err
	}
	if b.kept() == 0 {
		return b.run, fmt.Errorf("%w: the gate discarded all %d rounds", ErrNothing, len(b.run.Rounds))
	}
	return b.run, nil
}

func newRun(p Plan) *result.Run {
	run := &result.Run{
		Schema: result.SchemaVersion, Version: p.Version, Command: p.Command, Seed: p.Seed, Started: time.Now(),
		Settings: result.Settings{
			Mode: p.Mode, Rounds: p.Rounds, Seconds: p.Length.Seconds(), MTU: p.MTU, IPv6: p.IPv6, Gate: p.Gate.String(),
		},
	}
	for _, c := range p.Cells {
		if !slices.Contains(run.Settings.Placement, string(c.Placement)) {
			run.Settings.Placement = append(run.Settings.Placement, string(c.Placement))
		}
		if info := c.Workload.Info(); !slices.Contains(run.Workloads, info) {
			run.Workloads = append(run.Workloads, info)
		}
	}
	return run
}

func numCPU() int { return len(allowed()) }

// openLanes brings up every contender that can be; one that cannot is listed with the reason.
func (b *bench) openLanes(ctx context.Context) error {
	for _, c := range b.plan.Contenders {
		record := result.Contender{Name: c.Name(), Description: c.Description(), Unsupported: c.Unsupported()}
		if record.Unsupported == "" {
			b.progress.step("bringing up %s", c.Name())
			l, err := openLane(ctx, c, b.plan)
			switch {
			case ctx.Err() != nil:
				return errors.Join(ctx.Err(), err)
			case err != nil:
				b.progress.note("%s does not come up: %v", c.Name(), err)
				record.Unsupported = "does not come up: " + err.Error()
			default:
				b.lanes = append(b.lanes, l)
				record = l.record(ctx)
			}
		} else {
			b.progress.note("%s: %s", c.Name(), record.Unsupported)
		}
		b.run.Contenders = append(b.run.Contenders, record)
		b.progress.advance(bringUp)
	}
	if len(b.lanes) == 0 {
		return fmt.Errorf("%w: no contender came up", ErrNothing)
	}
	return nil
}

func (b *bench) closeLanes() error {
	var errs []error
	for _, l := range b.lanes {
		b.progress.status("taking down %s", l.contender.Name())
		errs = append(errs, l.close())
		b.progress.advance(takeDown)
	}
	b.progress.clear()
	return errors.Join(errs...)
}

// lane finds the contender behind a name that takes part in rounds; nil when it did not come up.
func (b *bench) lane(name string) *lane {
	if name == stats.Again {
		name = stats.Baseline
	}
	for _, l := range b.lanes {
		if l.contender.Name() == name {
			return l
		}
	}
	return nil
}

func (b *bench) cgroups() []string {
	var list []string
	for _, l := range b.lanes {
		list = append(list, l.cgroups()...)
	}
	return list
}

func (b *bench) kept() int {
	n := 0
	for _, r := range b.run.Rounds {
		if r.Discarded == "" {
			n++
		}
	}
	return n
}

// traffic makes everything that runs workloads, with this process out of their way.
func (b *bench) traffic(ctx context.Context) error {
	release, err := stayOn(allowed()[0])
	if err != nil {
		return err
	}
	defer release()
	if err := b.rounds(ctx); err != nil {
		return err
	}
	return b.programs(ctx)
}

// rounds makes the warm-up round and then rounds until enough are kept, or no more may be made.
func (b *bench) rounds(ctx context.Context) error {
	var entrants []string
	for _, name := range b.plan.entrants() {
		if b.lane(name) != nil {
			entrants = append(entrants, name)
		}
	}
	if b.plan.WarmUp > 0 {
		if err := b.pass(ctx, "warm-up", -1, entrants, b.plan.WarmUp, func(result.Sample) {}); err != nil {
			return err
		}
	}
	for i := 0; b.kept() < b.plan.Rounds && i < b.plan.Rounds+b.plan.ExtraRounds; i++ {
		if elapsed := time.Since(b.run.Started); i > 0 && b.plan.Until > 0 && elapsed > b.plan.Until {
			b.progress.note("no further round after %v: %d of %d kept", elapsed.Round(time.Second), b.kept(), b.plan.Rounds)
			break
		}
		if i >= b.plan.Rounds {
			b.progress.extend(b.plan.round(len(entrants), b.plan.Length))
		}
		if err := b.round(ctx, i, entrants); err != nil {
			return err
		}
	}
	b.progress.note("%d rounds kept, %d discarded by the gate", b.kept(), len(b.run.Rounds)-b.kept())
	return nil
}

// round makes one round and lets the gate judge it.
func (b *bench) round(ctx context.Context, index int, entrants []string) error {
	r := result.Round{Index: index, Order: shuffled(b.plan.Seed, index, entrants), Started: time.Now()}
	w, err := startWatch(b.cgroups(), b.threads)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("round %d of %d", b.kept()+1, b.plan.Rounds)
	err = b.pass(ctx, title, index, r.Order, b.plan.Length, func(s result.Sample) { b.run.Samples = append(b.run.Samples, s) })
	if err != nil {
		// Half a round compares nothing: its samples stay in the file and do not count.
		r.Discarded = "interrupted"
		b.run.Rounds = append(b.run.Rounds, r)
		return err
	}
	r.Seconds = time.Since(r.Started).Seconds()
	if r.Steal, r.Foreign, err = w.stop(); err != nil {
		return err
	}
	if r.Discarded = b.plan.Gate.judge(r, b.run.Samples); r.Discarded != "" {
		b.progress.note("round %d is discarded: %s", index+1, r.Discarded)
	} else if !b.progress.terminal {
		b.progress.step("%s done: steal %.1f %%, foreign load %.1f %%", title, r.Steal*100, r.Foreign*100)
	}
	b.run.Rounds = append(b.run.Rounds, r)
	return nil
}

// pass runs every cell over every entrant in the given order.
func (b *bench) pass(ctx context.Context, title string, round int, order []string, length time.Duration, keep func(result.Sample)) error {
	for _, name := range order {
		for _, cell := range b.plan.Cells {
			b.progress.status("%s: %s, %s %s", title, name, cell.Workload.Info().Name, cell.Path)
			s := b.sample(ctx, b.lane(name), cell, length)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.Round, s.Contender = round, name
			keep(s)
			b.progress.advance(cell.Workload.Seconds(length) + betweenCell)
		}
	}
	return nil
}
