package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Entrant is a contender that has come up: it takes part in every round.
type Entrant interface {
	Name() string
	// Sample runs one cell, for about the wanted length. What goes wrong is in the sample's Error; round and contender
	// are filled in by the caller.
	Sample(ctx context.Context, cell Cell, length time.Duration) result.Sample
}

// Noise watches, during a round, the machines under test for what is not the bench's.
type Noise interface {
	// Begin is called before the samples of a round. It may take its time: the samples wait.
	Begin(ctx context.Context) error
	// End gives the shares (0…1) of the CPU time of all CPUs that the hypervisor and others took.
	End(ctx context.Context) (steal, foreign float64, err error)
}

// NewRun begins the record of a run of this schedule.
func NewRun(s Schedule) *result.Run {
	run := &result.Run{
		Schema: result.SchemaVersion, Version: s.Version, Command: s.Command, Seed: s.Seed, Started: time.Now(),
		Settings: result.Settings{Mode: s.Mode, Rounds: s.Rounds, Seconds: s.Length.Seconds(), IPv6: s.IPv6, Gate: s.Gate.String()},
	}
	for _, c := range s.Cells {
		if !slices.Contains(run.Settings.Placement, string(c.Placement)) {
			run.Settings.Placement = append(run.Settings.Placement, string(c.Placement))
		}
		if info := c.Workload.Info(); !slices.Contains(run.Workloads, info) {
			run.Workloads = append(run.Workloads, info)
		}
	}
	return run
}

// Finish ends the record of a run: what can be derived from its samples is.
func Finish(run *result.Run) {
	run.Finished = time.Now()
	run.Summary = stats.Summarize(run)
	run.CrossChecks = stats.CrossCheck(run)
}

// Kept counts the rounds that were not discarded.
func Kept(run *result.Run) int {
	n := 0
	for _, r := range run.Rounds {
		if r.Discarded == "" {
			n++
		}
	}
	return n
}

// Make makes the warm-up round and then rounds until enough are kept, or no more may be made. Rounds and samples are
// added to the run. The baseline is measured twice in each round.
func (s Schedule) Make(ctx context.Context, entrants []Entrant, noise Noise, run *result.Run, progress *Progress) error {
	m := &rounds{s, map[string]Entrant{}, nil, noise, run, progress}
	for _, e := range entrants {
		m.names = append(m.names, e.Name())
		m.entrants[e.Name()] = e
	}
	m.names = withAgain(m.names)
	m.entrants[stats.Again] = m.entrants[stats.Baseline]
	return m.make(ctx)
}

// rounds are those of a run under way.
type rounds struct {
	schedule Schedule
	entrants map[string]Entrant
	names    []string // of entrants, the baseline's second measurement among them
	noise    Noise
	run      *result.Run
	progress *Progress
}

func (m *rounds) make(ctx context.Context) error {
	s := m.schedule
	if s.WarmUp > 0 {
		if err := m.pass(ctx, "warm-up", -1, m.names, s.WarmUp, func(result.Sample) {}); err != nil {
			return err
		}
	}
	for i := 0; Kept(m.run) < s.Rounds && i < s.Rounds+s.ExtraRounds; i++ {
		if elapsed := time.Since(m.run.Started); i > 0 && s.Until > 0 && elapsed > s.Until {
			m.progress.Note("no further round after %v: %d of %d kept", elapsed.Round(time.Second), Kept(m.run), s.Rounds)
			break
		}
		if i >= s.Rounds {
			m.progress.extend(s.round(len(m.names), s.Length))
		}
		if err := m.round(ctx, i); err != nil {
			return err
		}
	}
	m.progress.Note("%d rounds kept, %d discarded by the gate", Kept(m.run), len(m.run.Rounds)-Kept(m.run))
	return nil
}

// round makes one round and lets the gate judge it.
func (m *rounds) round(ctx context.Context, index int) error {
	r := result.Round{Index: index, Order: shuffled(m.schedule.Seed, index, m.names), Started: time.Now()}
	title := fmt.Sprintf("round %d of %d", Kept(m.run)+1, m.schedule.Rounds)
	err := m.noise.Begin(ctx)
	if err == nil {
		err = m.pass(ctx, title, index, r.Order, m.schedule.Length, func(s result.Sample) { m.run.Samples = append(m.run.Samples, s) })
	}
	if err == nil {
		r.Seconds = time.Since(r.Started).Seconds()
		r.Steal, r.Foreign, err = m.noise.End(ctx)
	}
	if err != nil {
		// Half a round compares nothing: its samples stay in the file and do not count.
		r.Discarded = "interrupted"
		m.run.Rounds = append(m.run.Rounds, r)
		return err
	}
	if r.Discarded = m.schedule.Gate.judge(r, m.run.Samples); r.Discarded != "" {
		m.progress.Note("round %d is discarded: %s", index+1, r.Discarded)
	} else if !m.progress.terminal {
		m.progress.Step("%s done: steal %.1f %%, foreign load %.1f %%", title, r.Steal*100, r.Foreign*100)
	}
	m.run.Rounds = append(m.run.Rounds, r)
	return nil
}

// pass runs every cell over every entrant in the given order.
func (m *rounds) pass(ctx context.Context, title string, round int, order []string, length time.Duration, keep func(result.Sample)) error {
	for _, name := range order {
		for _, cell := range m.schedule.Cells {
			m.progress.Status("%s: %s, %s %s", title, name, cell.Workload.Info().Name, cell.Path)
			s := m.entrants[name].Sample(ctx, cell, length)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.Round, s.Contender = round, name
			keep(s)
			m.progress.Advance(cell.Workload.Seconds(length) + betweenCell)
		}
	}
	return nil
}
