package round

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Subject is a network that has come up: it takes part in every round.
type Subject interface {
	Name() string
	// Sample runs one cell, for about the wanted length. What goes wrong is in the sample's Error; the caller fills in
	// round and network.
	Sample(ctx context.Context, cell Cell, length time.Duration) result.Sample
}

// Kept is how many rounds count for every network: neither the round nor the network's last turn in it is discarded.
func Kept(run *result.Run) int {
	if len(run.Rounds) == 0 {
		return 0
	}
	least := len(run.Rounds)
	for _, name := range run.Rounds[0].Order {
		least = min(least, keptOf(run, name))
	}
	return least
}

// keptOf is how many rounds count for one network.
func keptOf(run *result.Run, name string) (n int) {
	for _, r := range run.Rounds {
		if r.Discarded == "" && keptTurn(r, name) {
			n++
		}
	}
	return n
}

// keptTurn reports whether a network had a turn in a round that was not discarded.
func keptTurn(r result.Round, name string) bool {
	return slices.ContainsFunc(r.Turns, func(t result.Turn) bool { return t.Network == name && t.Discarded == "" })
}

// rounds are the rounds of a run under way.
type rounds struct {
	schedule Schedule
	subjects map[string]Subject
	names    []string // of subjects, the baseline's second measurement among them
	noise    Noise
	run      *result.Run
	progress *Progress
	// others is the CPU time of what made turns too noisy, by name.
	others map[string]time.Duration
}

// Make makes the warm-up round, then rounds until enough are kept or the limit is reached. It adds rounds and samples
// to the run. Each round measures the baseline twice.
func (s Schedule) Make(ctx context.Context, subjects []Subject, noise Noise, run *result.Run, progress *Progress) error {
	m := &rounds{schedule: s, subjects: map[string]Subject{}, noise: noise, run: run, progress: progress, others: map[string]time.Duration{}}
	for _, e := range subjects {
		m.names = append(m.names, e.Name())
		m.subjects[e.Name()] = e
	}
	m.names = WithAgain(m.names)
	m.subjects[stats.Again] = m.subjects[stats.Baseline]
	if s.WarmUp > 0 {
		if err := m.pass(ctx, -1, m.names, s.WarmUp, func(result.Sample) {}); err != nil {
			return err
		}
	}
	for i := 0; Kept(m.run) < s.Rounds && i < s.Rounds+s.ExtraRounds; i++ {
		if elapsed := time.Since(m.run.Started); i > 0 && s.Until > 0 && elapsed > s.Until {
			m.progress.Note("no further round after %v: %d of %d kept", elapsed.Round(time.Second), Kept(m.run), s.Rounds)
			break
		}
		if i >= s.Rounds {
			m.progress.extend(s.Round(len(m.names), s.Length))
		}
		if err := m.round(ctx, i); err != nil {
			return err
		}
	}
	if Kept(m.run) < s.Rounds {
		m.progress.Note("%s", m.advice())
	}
	return nil
}

// advice says what to do where there are fewer rounds than were wanted.
func (m *rounds) advice() string {
	text := fmt.Sprintf("%d of %d rounds: the machine was busy, and intervals are wider for it", Kept(m.run), m.schedule.Rounds)
	if ran := mostOf(m.others, 3); ran != "" {
		text += "; what ran beside the bench: " + ran
	}
	return text + ". End that and run again, or give it more time with --rounds; --max-foreign and --max-steal let busier turns pass, whose figures mean less"
}

// turnsAgain is how often a discarded turn is taken again. A pair of quiet turns comes sooner than a whole quiet round.
const turnsAgain = 2

// round makes one round and applies the gate.
func (m *rounds) round(ctx context.Context, index int) error {
	r := result.Round{Index: index, Order: shuffled(m.schedule.Seed, index, m.names), Started: time.Now()}
	title := fmt.Sprintf("round %d of %d", Kept(m.run)+1, m.schedule.Rounds)
	for _, name := range r.Order {
		if err := m.turns(ctx, &r, name); err != nil {
			// Half a round compares nothing: its samples stay in the file and do not count.
			r.Discarded = "interrupted"
			m.run.Rounds = append(m.run.Rounds, r)
			return err
		}
	}
	r.Seconds = time.Since(r.Started).Seconds()
	r.Steal, r.Foreign = noiseOf(r.Turns)
	if r.Discarded = m.schedule.Gate.round(r, m.run.Samples); r.Discarded != "" {
		m.progress.Note("round %d is discarded: %s", index+1, r.Discarded)
	} else {
		m.progress.Step("%s done: steal %.1f %%, foreign load %.1f %%", title, r.Steal*100, r.Foreign*100)
	}
	m.run.Rounds = append(m.run.Rounds, r)
	return nil
}

// turns takes a network's turn in a round, and again if the gate discards it.
func (m *rounds) turns(ctx context.Context, r *result.Round, name string) error {
	for again := range 1 + turnsAgain {
		if again > 0 {
			m.progress.extend(m.schedule.Round(1, m.schedule.Length))
		}
		first := len(m.run.Samples)
		t, err := m.turn(ctx, r.Index, name)
		if err != nil {
			return err
		}
		t.Discarded = m.schedule.Gate.turn(t)
		r.Turns = append(r.Turns, t)
		for i := range m.run.Samples[first:] {
			m.run.Samples[first+i].Discarded = t.Discarded
		}
		if t.Discarded == "" {
			return nil
		}
		m.blame()
	}
	return nil
}

// blame notes what ran beside a turn that was too noisy.
func (m *rounds) blame() {
	if noise, ok := m.noise.(blamer); ok {
		for name, took := range noise.Others() {
			m.others[name] += took
		}
	}
}

// turn runs every cell over one network and adds the samples to the run.
func (m *rounds) turn(ctx context.Context, round int, name string) (t result.Turn, err error) {
	if err := m.noise.Begin(ctx); err != nil {
		return t, err
	}
	started := time.Now()
	keep := func(s result.Sample) { m.run.Samples = append(m.run.Samples, s) }
	if err := m.pass(ctx, round, []string{name}, m.schedule.Length, keep); err != nil {
		return t, err
	}
	t = result.Turn{Network: name, Seconds: time.Since(started).Seconds()}
	t.Steal, t.Foreign, err = m.noise.End(ctx)
	return t, err
}

// noiseOf is that of all turns together, by the time they took.
func noiseOf(turns []result.Turn) (steal, foreign float64) {
	var seconds float64
	for _, t := range turns {
		seconds += t.Seconds
		steal += t.Steal * t.Seconds
		foreign += t.Foreign * t.Seconds
	}
	if seconds > 0 {
		steal, foreign = steal/seconds, foreign/seconds
	}
	return steal, foreign
}

// pass runs every cell over every subject in the given order.
func (m *rounds) pass(ctx context.Context, round int, order []string, length time.Duration, keep func(result.Sample)) error {
	for _, name := range order {
		for _, cell := range m.schedule.Cells {
			s := m.subjects[name].Sample(ctx, cell, length)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.Round, s.Network = round, name
			keep(s)
			m.progress.Advance(cell.Workload.Seconds(length) + betweenCell)
		}
	}
	return nil
}
