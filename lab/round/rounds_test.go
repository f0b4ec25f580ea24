package round

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/workload"
)

// still is a subject that measures nothing: each sample is the number of samples before it.
type still struct {
	name string
	took int
}

func (s *still) Name() string { return s.name }

func (s *still) Sample(_ context.Context, c Cell, _ time.Duration) result.Sample {
	s.took++
	return result.Sample{Workload: c.Workload.Info().Name, Path: c.Path, Placement: c.Placement, Procs: c.Procs, Values: map[string]float64{result.Rate: float64(s.took)}}
}

// scripted is a Noise that gives these shares of foreign load, one for each turn, and none after them.
type scripted struct{ foreign []float64 }

func (n *scripted) Begin(context.Context) error { return nil }

func (n *scripted) End(context.Context) (steal, foreign float64, err error) {
	if len(n.foreign) > 0 {
		foreign, n.foreign = n.foreign[0], n.foreign[1:]
	}
	return 0, foreign, nil
}

func (n *scripted) Others() map[string]time.Duration {
	return map[string]time.Duration{"compiler": time.Second, "editor": time.Millisecond}
}

// make3 makes rounds of node and another network until three count, with at most this many more.
func make3(t *testing.T, extra int, foreign ...float64) (*result.Run, string) {
	t.Helper()
	list, err := workload.Select([]string{"tcp_rr"})
	if err != nil {
		t.Fatal(err)
	}
	s := Schedule{Cells: []Cell{{list[0], result.CrossNode, result.OneCore, 1}}, Rounds: 3, ExtraRounds: extra, Length: 50 * time.Millisecond, Seed: 1, Gate: DefaultGate}
	run := newResult(s)
	var said bytes.Buffer
	if err := s.Make(t.Context(), []Subject{&still{name: stats.Baseline}, &still{name: "other"}}, &scripted{foreign}, run, NewProgress(&said, time.Minute)); err != nil {
		t.Fatal(err)
	}
	return run, said.String()
}

// A turn that was too noisy is taken again at once, and the rest of its round stays.
func TestNoisyTurnIsTakenAgain(t *testing.T) {
	run, said := make3(t, 3, 0, 0.3, 0.2, 0) // the second turn of the first round, twice
	if len(run.Rounds) != 3 || Kept(run) != 3 {
		t.Fatalf("%d rounds, %d kept, want 3 and 3\n%s", len(run.Rounds), Kept(run), said)
	}
	noisy := run.Rounds[0].Order[1]
	var discarded []string
	for _, turn := range run.Rounds[0].Turns {
		if turn.Discarded != "" {
			discarded = append(discarded, turn.Network)
		}
	}
	if !slices.Equal(discarded, []string{noisy, noisy}) {
		t.Errorf("discarded turns of %v, want twice that of %s", discarded, noisy)
	}
	kept := 0
	for _, s := range run.Samples {
		if s.Round == 0 && s.Network == noisy && s.Discarded == "" {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("%d samples of %s count in the first round, want 1", kept, noisy)
	}
}

// Where a network's turns are all noisy, another round is made for it, and the others' turns count.
func TestNetworkWithoutAQuietTurn(t *testing.T) {
	first := shuffled(1, 0, WithAgain([]string{stats.Baseline, "other"}))
	foreign := slices.Repeat([]float64{0}, slices.Index(first, "other"))
	foreign = append(foreign, 0.3, 0.3, 0.3)
	run, said := make3(t, 3, foreign...)
	if len(run.Rounds) != 4 || Kept(run) != 3 || keptOf(run, stats.Baseline) != 4 {
		t.Errorf("%d rounds, %d kept, %d with the baseline; want 4, 3 and 4\n%s", len(run.Rounds), Kept(run), keptOf(run, stats.Baseline), said)
	}
}

// On a machine that is never quiet a run ends at its limit, names the programs that ran, and gives advice.
func TestBusyMachineIsNamed(t *testing.T) {
	run, said := make3(t, 1, slices.Repeat([]float64{0.3}, 100)...)
	if len(run.Rounds) != 4 || Kept(run) != 0 {
		t.Errorf("%d rounds, %d kept, want 4 and 0", len(run.Rounds), Kept(run))
	}
	for _, want := range []string{"0 of 3 rounds", "compiler, editor", "--max-foreign"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in:\n%s", want, said)
		}
	}
}
