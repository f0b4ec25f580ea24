package round

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// ErrNothing says that a run gave no figure: no network came up, or the gate kept no round.
var ErrNothing = errors.New("could not measure")

// Suite is one comparison of networks.
type Suite interface {
	// Plan is what is decided before the run about its rounds.
	Plan() *Schedule
	// Names are those of the networks that take part.
	Names() []string
	// Validate names everything that is wrong with the plan.
	Validate() error
	// Estimate is about how long the run takes if the gate discards nothing.
	Estimate() time.Duration
	// Limit is how long the run may take; 0: no limit.
	Limit() time.Duration
	// Up brings up every network that it can, records all of them, and returns what takes part in the rounds.
	Up(ctx context.Context, b *Bench) (Field, error)
	// After measures what has no place in the rounds.
	After(ctx context.Context, b *Bench) error
	// Down removes everything that Up made, also after an error and after the context ended.
	Down(ctx context.Context, b *Bench) error
}

// Bench is a run under way.
type Bench struct {
	Result   *result.Run
	Progress *Progress
}

// Field is what takes part in the rounds.
type Field struct {
	Subjects []Subject
	Noise    Noise
	// CPU is where this process stays during the rounds, out of the way of what is measured; nil: anywhere.
	CPU *int
}

// Run carries out a suite. The result is never nil: what was measured before an error, or before the context ended, is
// in it, with its summary. Nothing that was brought up is left, unless the error says so.
func Run(ctx context.Context, s Suite, progress *Progress) (run *result.Run, err error) {
	b := &Bench{Result: newResult(*s.Plan()), Progress: progress}
	defer func() { finish(b.Result) }()
	if err := s.Validate(); err != nil {
		return b.Result, err
	}
	if limit := s.Limit(); limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no end after %v", limit.Round(time.Second)))
		defer cancel()
		ctx = limited
	}
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil && s.Limit() > 0 {
			err = cause
		}
		err = errors.Join(err, s.Down(ctx, b))
	}()
	field, err := s.Up(ctx, b)
	if err != nil {
		return b.Result, err
	}
	if len(field.Subjects) == 0 {
		return b.Result, fmt.Errorf("%w: no network came up", ErrNothing)
	}
	if err := makeRounds(ctx, s, field, b); err != nil {
		return b.Result, err
	}
	if err := s.After(ctx, b); err != nil {
		return b.Result, err
	}
	if Kept(b.Result) == 0 {
		return b.Result, fmt.Errorf("%w: the gate discarded all %d rounds", ErrNothing, len(b.Result.Rounds))
	}
	return b.Result, nil
}

func makeRounds(ctx context.Context, s Suite, field Field, b *Bench) error {
	if field.CPU != nil {
		release, err := StayOn(*field.CPU)
		if err != nil {
			return err
		}
		defer release()
	}
	return s.Plan().Make(ctx, field.Subjects, field.Noise, b.Result, b.Progress)
}

// newResult begins the record of a run of this schedule.
func newResult(s Schedule) *result.Run {
	run := &result.Run{
		Schema: result.SchemaVersion, Version: s.Version, Command: s.Command, Seed: s.Seed, Started: time.Now(),
		Settings: result.Settings{Mode: s.Mode, Rounds: s.Rounds, Seconds: s.Length.Seconds(), IPv6: s.IPv6, Gate: s.Gate.String()},
	}
	placements, workloads := map[string]bool{}, map[result.Workload]bool{}
	for _, c := range s.Cells {
		if p := string(c.Placement); !placements[p] {
			placements[p] = true
			run.Settings.Placement = append(run.Settings.Placement, p)
		}
		if info := c.Workload.Info(); !workloads[info] {
			workloads[info] = true
			run.Workloads = append(run.Workloads, info)
		}
	}
	return run
}

// finish ends the record of a run: it adds what can be derived from the samples.
func finish(run *result.Run) {
	run.Finished = time.Now()
	run.Summary = stats.Summarize(run)
	run.CrossChecks = stats.CrossCheck(run)
}
