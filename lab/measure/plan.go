// Package measure makes a bench run: it brings every contender up on a lab of its own, runs all workloads
// over all of them in rounds of random order, watches the machine for noise, and takes everything down again.
// How figures are derived from the samples is package stats' business.
package measure

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/contender"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/topology"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Cell is one workload run in one way: a column of the result.
type Cell struct {
	Workload  workload.Workload
	Path      result.Path
	Placement result.Placement
	Procs     int
}

func (c Cell) String() string {
	return fmt.Sprintf("%s, %s, %s, %d processes", c.Workload.Info().Name, c.Path, c.Placement, c.Procs)
}

func (c Cell) key() stats.Key {
	return stats.Key{Workload: c.Workload.Info().Name, Path: c.Path, Placement: c.Placement, Procs: c.Procs}
}

// Plan is everything that is decided before a run.
type Plan struct {
	// Mode, Version and Command are for the record.
	Mode    string
	Version string
	Command []string

	Contenders []contender.Contender
	Cells      []Cell
	// Rounds is how many are to be kept, ExtraRounds how many more may be made for those the gate discards.
	Rounds, ExtraRounds int
	// Length of one sample, about; WarmUp of one in the round before the first, which does not count (0: none).
	Length, WarmUp time.Duration
	// Until is the time from the start after which no further round begins (0: no limit). At least one round is made.
	Until time.Duration
	MTU   int
	// IPv6 is measured instead of IPv4. LeftOut names the workloads that cannot be had with it, and why.
	IPv6    bool
	LeftOut []string
	Seed    uint64
	Gate    Gate

	// ProgramCells are run once more for contenders with an agent, with the kernel counting BPF run time.
	ProgramCells []Cell
	// FootprintOf names the contenders of which Pods pods are added and removed one after the other.
	FootprintOf []string
	Pods        int
	// Idle is how long agents are watched while nothing happens (0: not at all).
	Idle time.Duration
}

// Validate names everything that cannot be.
func (p Plan) Validate() error {
	var errs []error
	if len(p.Contenders) == 0 {
		errs = append(errs, errors.New("no contenders"))
	}
	if len(p.Cells) == 0 {
		errs = append(errs, errors.New("no workloads"))
	}
	if p.Rounds < 1 {
		errs = append(errs, fmt.Errorf("rounds %d: want at least 1", p.Rounds))
	}
	if p.ExtraRounds < 0 {
		errs = append(errs, fmt.Errorf("extra rounds %d: want 0 or more", p.ExtraRounds))
	}
	if p.Length < 50*time.Millisecond {
		errs = append(errs, fmt.Errorf("duration %v: want at least 50ms", p.Length))
	}
	if p.MTU < topology.MinMTU || p.MTU > topology.MaxMTU {
		errs = append(errs, fmt.Errorf("MTU %d: want %d to %d", p.MTU, topology.MinMTU, topology.MaxMTU))
	}
	if p.Pods < 0 || p.Pods > 240 {
		errs = append(errs, fmt.Errorf("pods %d: want 0 to 240, a node's /24 has no room for more", p.Pods))
	}
	seen := map[stats.Key]bool{}
	for _, c := range p.Cells {
		k := c.key()
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

// HasBaseline says whether there is what ratios are formed with.
func (p Plan) HasBaseline() bool {
	return slices.ContainsFunc(p.Contenders, func(c contender.Contender) bool { return c.Name() == stats.Baseline })
}

// entrants are the names that take part in each round: the contenders, and the baseline a second time, which
// shows how far apart two measurements of the same thing are.
func (p Plan) entrants() []string {
	var names []string
	for _, c := range p.Contenders {
		names = append(names, c.Name())
		if c.Name() == stats.Baseline {
			names = append(names, stats.Again)
		}
	}
	return names
}

// What the parts of a run take, about, on a machine of two cores. The estimate is corrected while running.
const (
	bringUp     = 900 * time.Millisecond
	takeDown    = 300 * time.Millisecond
	betweenCell = 25 * time.Millisecond
	addAndDel   = 200 * time.Millisecond
)

// round is the time of one round with samples of a length.
func (p Plan) round(entrants int, length time.Duration) time.Duration {
	var once time.Duration
	for _, c := range p.Cells {
		once += c.Workload.Seconds(length) + betweenCell
	}
	return once * time.Duration(entrants)
}

// Estimate is how long the run takes, about, when no round is discarded.
func (p Plan) Estimate() time.Duration {
	n := len(p.entrants())
	total := time.Duration(len(p.Contenders))*(bringUp+takeDown) + p.round(n, p.Length)*time.Duration(p.Rounds)
	if p.WarmUp > 0 {
		total += p.round(n, p.WarmUp)
	}
	return total + p.afterRounds()
}

// afterRounds is the time of the measurements that have rounds of their own.
func (p Plan) afterRounds() time.Duration {
	var total time.Duration
	for _, c := range p.ProgramCells {
		total += 2 * c.Workload.Seconds(p.Length) // two contenders with an agent
	}
	return total + time.Duration(len(p.FootprintOf)*p.Pods)*addAndDel + p.Idle
}

// shuffled gives the names in the order of one round. The order depends on seed, round and names only.
func shuffled(seed uint64, round int, names []string) []string {
	order := slices.Clone(names)
	random := rand.New(rand.NewPCG(seed, uint64(round)))
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
