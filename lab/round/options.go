package round

import (
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Options are what a person chooses. Zero fields leave a suite's own values.
type Options struct {
	// Full measures everything, else a suite measures what says most, in a few minutes.
	Full bool
	// Networks and Workloads are names.
	Networks, Workloads []string
	// Builds take part beside the build that runs: each as all the networks of this project that are chosen.
	Builds []network.Build
	// Others take part beside the networks of the suite: see package lab/network/script.
	Others     []network.Network
	Paths      []result.Path
	Placements []result.Placement
	Procs      []int
	Rounds     int
	Length     time.Duration
	// Levels are the numbers of Services, in the services suite.
	Levels []int

	// What follows does not make a run a custom one.

	IPv6 bool
	// MTU is that of the wire, in bytes. Pods is how many are added and removed for the times of CNI ADD and DEL.
	MTU, Pods *int
	// Steal and Foreign are the gate's shares (0…1).
	Steal, Foreign *float64
	// Seed, Version and Command are for the record.
	Seed    uint64
	Version string
	Command []string
}

// custom reports whether the options change what is measured.
func (o Options) custom() bool {
	return len(o.Networks)+len(o.Builds)+len(o.Others)+len(o.Workloads)+len(o.Paths)+len(o.Placements)+len(o.Procs)+len(o.Levels)+o.Rounds+int(o.Length) > 0
}

// NewSchedule returns the rounds that the options choose, without cells. A quick run has nine rounds: the 95 % interval
// of a median then leaves out the extreme values on both sides, while with seven it is the whole range.
func NewSchedule(o Options) Schedule {
	s := Schedule{
		Mode: "quick", Rounds: 9, Length: 500 * time.Millisecond, WarmUp: 200 * time.Millisecond, Gate: DefaultGate,
		IPv6: o.IPv6, Seed: o.Seed, Version: o.Version, Command: o.Command,
	}
	if o.Full {
		s.Mode, s.Rounds = "full", 10
	}
	if o.custom() {
		s.Mode = "custom"
	}
	if o.Rounds > 0 {
		s.Rounds = o.Rounds
	}
	s.ExtraRounds = s.Rounds
	if o.Length > 0 {
		s.Length = o.Length
	}
	s.Gate = s.Gate.With(o)
	return s
}

// With returns the gate with the shares that the options choose.
func (g Gate) With(o Options) Gate {
	if o.Steal != nil {
		g.Steal = *o.Steal
	}
	if o.Foreign != nil {
		g.Foreign = *o.Foreign
	}
	return g
}

// Cells are the options that make the cells of a full run, or of a quick one: what separates networks most, across nodes,
// and TCP_RR on one node. The caller chooses placements.
func Cells(o Options) []Options {
	if o.Full {
		o.Paths = OrDefault(o.Paths, result.CrossNode, result.SameNode)
		return []Options{o}
	}
	o.Workloads = OrDefault(o.Workloads, "tcp_stream_128k", "tcp_stream_16k", "tcp_rr", "tcp_crr")
	o.Procs = OrDefault(o.Procs, 1)
	if len(o.Paths) > 0 {
		return []Options{o}
	}
	across, same := o, o
	across.Paths, same.Paths = []result.Path{result.CrossNode}, []result.Path{result.SameNode}
	same.Workloads = []string{"tcp_rr"}
	if !slices.Contains(o.Workloads, "tcp_rr") {
		return []Options{across}
	}
	return []Options{across, same}
}

// Add crosses the chosen workloads, paths, placements and numbers of processes, for ends with so many CPUs. A workload
// for which more processes make no difference gets one cell. No names of workloads choose all of them.
func (s *Schedule) Add(o Options, cpus int) error {
	list, err := workload.Select(o.Workloads)
	if err != nil {
		return err
	}
	for _, path := range o.Paths {
		if path != result.CrossNode && path != result.SameNode {
			return fmt.Errorf("no path %q; there are: %s, %s", path, result.CrossNode, result.SameNode)
		}
	}
	for _, w := range list {
		if why := w.IPv4Only(); s.IPv6 && why != "" {
			if left := w.Info().Name + ": " + why; !slices.Contains(s.LeftOut, left) {
				s.LeftOut = append(s.LeftOut, left)
			}
			continue
		}
		for _, path := range o.Paths {
			for _, placement := range o.Placements {
				for _, procs := range processes(w, o.Procs, cpus) {
					s.Cells = append(s.Cells, Cell{w, path, placement, procs})
				}
			}
		}
	}
	return nil
}

func processes(w workload.Workload, chosen []int, cpus int) []int {
	own := w.Processes(cpus)
	if len(chosen) == 0 || len(own) == 1 {
		return own
	}
	return slices.Compact(slices.Sorted(slices.Values(chosen)))
}

// OnePath returns the placement and the workloads of a suite that has one path, one process and one placement. It
// returns an error for options that such a suite does not have, and where this machine lacks a tool.
func OnePath(o Options, suite string) (result.Placement, []workload.Workload, error) {
	if len(o.Paths) > 0 && !slices.Equal(o.Paths, []result.Path{result.CrossNode}) || len(o.Procs) > 0 && !slices.Equal(o.Procs, []int{1}) {
		return "", nil, fmt.Errorf("the suite %s has the path cross-node and one process only", suite)
	}
	if len(o.Placements) > 1 {
		return "", nil, fmt.Errorf("the suite %s has one placement", suite)
	}
	placement := OrDefault(o.Placements, result.OneCore)[0]
	if _, _, err := EndCPUs(placement); err != nil {
		return "", nil, err
	}
	list, err := Installed(o.Workloads)
	return placement, list, err
}

// Installed returns the workloads of these names, and an error where a tool is missing.
func Installed(names []string) ([]workload.Workload, error) {
	list, err := workload.Select(names)
	if err != nil {
		return nil, err
	}
	for _, w := range list {
		if missing := w.Missing(); missing != "" {
			return nil, fmt.Errorf("workload %s: %s", w.Info().Name, missing)
		}
	}
	return list, nil
}

// OrDefault returns the list, or the values if it is empty.
func OrDefault[T any](list []T, values ...T) []T {
	if len(list) == 0 {
		return values
	}
	return list
}
