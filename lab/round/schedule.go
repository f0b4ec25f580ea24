// Package round makes the rounds of a bench run: it runs every workload over every network in random order, watches the
// machine for noise, accounts CPU time, and writes the results. How figures are derived from samples is package stats.
package round

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Cell is one workload with a path, a placement and a number of processes: a column of the result.
type Cell struct {
	Workload  workload.Workload
	Path      result.Path
	Placement result.Placement
	Procs     int
}

func (c Cell) String() string {
	return fmt.Sprintf("%s, %s, %s, %d processes", c.Workload.Info().Name, c.Path, c.Placement, c.Procs)
}

// Key identifies the cell in statistics.
func (c Cell) Key() stats.Key {
	return stats.Key{Workload: c.Workload.Info().Name, Path: c.Path, Placement: c.Placement, Procs: c.Procs}
}

// Schedule is what is decided before a run about its rounds.
type Schedule struct {
	// Mode, Version and Command are for the record.
	Mode    string
	Version string
	Command []string

	Cells []Cell
	// Rounds is how many to keep, ExtraRounds how many more may replace those that the gate discards.
	Rounds, ExtraRounds int
	// Length of one sample, about; WarmUp of one in the round before the first, which does not count (0: none).
	Length, WarmUp time.Duration
	// Until is the time from the start after which no further round begins; 0: no limit. At least one round is made.
	Until time.Duration
	// IPv6 is measured instead of IPv4. LeftOut names the workloads that are not available, and why.
	IPv6    bool
	LeftOut []string
	Seed    uint64
	Gate    Gate
}

// Validate names everything that is wrong.
func (s Schedule) Validate() error {
	var errs []error
	if len(s.Cells) == 0 {
		errs = append(errs, errors.New("no workloads"))
	}
	if s.Rounds < 1 {
		errs = append(errs, fmt.Errorf("rounds %d: want at least 1", s.Rounds))
	}
	if s.ExtraRounds < 0 {
		errs = append(errs, fmt.Errorf("extra rounds %d: want 0 or more", s.ExtraRounds))
	}
	if s.Length < 50*time.Millisecond {
		errs = append(errs, fmt.Errorf("duration %v: want at least 50ms", s.Length))
	}
	seen := map[stats.Key]bool{}
	for _, c := range s.Cells {
		k := c.Key()
		if seen[k] {
			errs = append(errs, fmt.Errorf("%s: twice", c))
		}
		seen[k] = true
		if c.Procs < 1 {
			errs = append(errs, fmt.Errorf("%s: want at least 1 process", c))
		}
	}
	return errors.Join(errs...)
}

// betweenCell is what a sample takes beside its workload, about.
const betweenCell = 25 * time.Millisecond

// Round is the time of one round with so many subjects and samples of a length.
func (s Schedule) Round(subjects int, length time.Duration) time.Duration {
	var once time.Duration
	for _, c := range s.Cells {
		once += c.Workload.Seconds(length) + betweenCell
	}
	return once * time.Duration(subjects)
}

// Estimate is about how long the rounds take with so many subjects if none is discarded.
func (s Schedule) Estimate(subjects int) time.Duration {
	total := s.Round(subjects, s.Length) * time.Duration(s.Rounds)
	if s.WarmUp > 0 {
		total += s.Round(subjects, s.WarmUp)
	}
	return total
}

// WithAgain adds the baseline a second time, which shows how far apart two measurements of the same thing are.
func WithAgain(names []string) []string {
	var list []string
	for _, name := range names {
		list = append(list, name)
		if name == stats.Baseline {
			list = append(list, stats.Again)
		}
	}
	return list
}

// shuffled returns the names in the order of one round. The order depends on seed, round and names only.
func shuffled(seed uint64, round int, names []string) []string {
	order := slices.Clone(names)
	random := rand.New(rand.NewPCG(seed, uint64(round)))
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
