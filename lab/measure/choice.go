package measure

import (
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Choice narrows a preset down; zero fields leave it as it is.
type Choice struct {
	Networks, Workloads []string
	// Builds take part beside the build that runs: each as all the networks of this project that are chosen.
	Builds     []network.Build
	Paths      []result.Path
	Placements []result.Placement
	Procs      []int
	Rounds     int
	Length     time.Duration
	// Levels are the numbers of Services, in the Service bench.
	Levels []int
	// IPv6 is measured instead of IPv4; it does not make a run a custom one.
	IPv6 bool
}

func (c Choice) isZero() bool {
	return len(c.Networks)+len(c.Builds)+len(c.Workloads)+len(c.Paths)+len(c.Placements)+len(c.Procs)+len(c.Levels)+c.Rounds+int(c.Length) == 0
}

// quickWorkloads are run across nodes; the first of sameNodeQuick also on one node.
var (
	quickWorkloads = []string{"tcp_stream_128k", "tcp_stream_16k", "tcp_rr", "tcp_crr"}
	sameNodeQuick  = []string{"tcp_rr"}
)

// QuickSchedule has the rounds of a run of a few minutes, without cells. With nine rounds the 95 % interval of a
// median leaves out the extreme values on both sides; with seven it is the whole range.
func QuickSchedule(c Choice) Schedule {
	return Schedule{Mode: "quick", Rounds: 9, ExtraRounds: 9, Length: 500 * time.Millisecond, WarmUp: 200 * time.Millisecond, Gate: DefaultGate}.narrowed(c)
}

// FullSchedule has the rounds of a run of everything, without cells.
func FullSchedule(c Choice) Schedule {
	return Schedule{Mode: "full", Rounds: 10, ExtraRounds: 10, Length: 500 * time.Millisecond, WarmUp: 200 * time.Millisecond, Gate: DefaultGate}.narrowed(c)
}

// narrowed takes over what does not concern cells.
func (s Schedule) narrowed(c Choice) Schedule {
	if !c.isZero() {
		s.Mode = "custom"
	}
	s.IPv6 = c.IPv6
	if c.Rounds > 0 {
		s.Rounds = c.Rounds
		s.ExtraRounds = c.Rounds
	}
	if c.Length > 0 {
		s.Length = c.Length
	}
	return s
}

// QuickCells are the choices that make a quick run: what separates networks most, across nodes, and some of it on one
// node. Placements have to be chosen.
func QuickCells(c Choice) []Choice {
	if len(c.Workloads) == 0 {
		c.Workloads = quickWorkloads
	}
	c.Procs = orDefault(c.Procs, 1)
	if len(c.Paths) > 0 {
		return []Choice{c}
	}
	across, same := c, c
	across.Paths, same.Paths = []result.Path{result.CrossNode}, []result.Path{result.SameNode}
	same.Workloads = slices.DeleteFunc(slices.Clone(c.Workloads), func(n string) bool { return !slices.Contains(sameNodeQuick, n) })
	if len(same.Workloads) == 0 {
		return []Choice{across}
	}
	return []Choice{across, same}
}

// FullCells are the choices that make a full run. Placements have to be chosen.
func FullCells(c Choice) []Choice {
	c.Paths = orDefault(c.Paths, result.CrossNode, result.SameNode)
	return []Choice{c}
}

// Add crosses the chosen workloads, paths, placements and numbers of processes, for ends that have so many CPUs.
// Workloads that know one process only, and those in which more make no difference, get one cell. All of them for
// no names of workloads.
func (s *Schedule) Add(c Choice, cpus int) error {
	list, err := workload.Select(c.Workloads)
	if err != nil {
		return err
	}
	for _, path := range c.Paths {
		if path != result.CrossNode && path != result.SameNode {
			return fmt.Errorf("no path %q; there are: %s, %s", path, result.CrossNode, result.SameNode)
		}
	}
	for _, w := range list {
		if why := w.IPv4Only(); s.IPv6 && why != "" {
			s.leaveOut(w.Info().Name + ": " + why)
			continue
		}
		for _, path := range c.Paths {
			for _, placement := range c.Placements {
				for _, procs := range processes(w, c.Procs, cpus) {
					s.Cells = append(s.Cells, Cell{w, path, placement, procs})
				}
			}
		}
	}
	return nil
}

func (s *Schedule) leaveOut(what string) {
	if !slices.Contains(s.LeftOut, what) {
		s.LeftOut = append(s.LeftOut, what)
	}
}

func processes(w workload.Workload, chosen []int, cpus int) []int {
	own := w.Processes(cpus)
	if len(chosen) == 0 {
		return own
	}
	if len(own) == 1 {
		return own
	}
	return slices.Compact(slices.Sorted(slices.Values(chosen)))
}

func orDefault[T any](list []T, values ...T) []T {
	if len(list) == 0 {
		return values
	}
	return list
}
