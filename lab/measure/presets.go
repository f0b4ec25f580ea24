package measure

import (
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/contender"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/workload"
)

// QuickLimit is what a quick run may take in all.
const QuickLimit = 5 * time.Minute

// reserve is kept of QuickLimit for what takes longer than planned.
const reserve = 15 * time.Second

// Choice narrows a preset down; zero fields leave it as it is.
type Choice struct {
	Contenders, Workloads []string
	Paths                 []result.Path
	Placements            []result.Placement
	Procs                 []int
	Rounds                int
	Length                time.Duration
	// IPv6 is measured instead of IPv4; it does not make a run a custom one.
	IPv6 bool
}

func (c Choice) isZero() bool {
	return len(c.Contenders)+len(c.Workloads)+len(c.Paths)+len(c.Placements)+len(c.Procs)+c.Rounds+int(c.Length) == 0
}

// quickWorkloads are run across nodes; the first of sameNodeQuick also on one node.
var (
	quickWorkloads = []string{"tcp_stream_128k", "tcp_stream_16k", "tcp_rr", "tcp_crr"}
	sameNodeQuick  = []string{"tcp_rr"}
)

// Quick is the plan of a few minutes: what separates networks most, all on one core. With nine rounds the
// 95 % interval of a median leaves out the extreme values on both sides; with seven it is the whole range.
func Quick(c Choice) (Plan, error) {
	p := Plan{Mode: "quick", MTU: defaultMTU, Rounds: 9, ExtraRounds: 2, Length: 500 * time.Millisecond, WarmUp: 200 * time.Millisecond,
		Gate: DefaultGate, Pods: 20, Idle: 5 * time.Second}
	if err := p.choose(c); err != nil {
		return p, err
	}
	names := c.Workloads
	if len(names) == 0 {
		names = quickWorkloads
	}
	c.Placements = orDefault(c.Placements, result.OneCore)
	c.Procs = orDefault(c.Procs, 1)
	across, same := c, c
	across.Workloads, across.Paths = names, []result.Path{result.CrossNode}
	same.Workloads, same.Paths = names, []result.Path{result.SameNode}
	wantAcross, wantSame := slices.Contains(c.Paths, result.CrossNode), slices.Contains(c.Paths, result.SameNode)
	if len(c.Paths) == 0 {
		same.Workloads = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(sameNodeQuick, n) })
		wantAcross, wantSame = true, len(same.Workloads) > 0
	}
	if wantAcross {
		if err := p.addCells(across); err != nil {
			return p, err
		}
	}
	if wantSame {
		if err := p.addCells(same); err != nil {
			return p, err
		}
	}
	p.finish()
	if p.Mode == "quick" {
		// A round begins only where it and what comes after it fit.
		after := p.round(len(p.entrants()), p.Length) + p.afterRounds() + time.Duration(len(p.Contenders))*takeDown
		p.Until = QuickLimit - reserve - after
	}
	return p, nil
}

// Full is the plan of everything, both placements; it takes more than an hour.
func Full(c Choice) (Plan, error) {
	p := Plan{Mode: "full", MTU: defaultMTU, Rounds: 10, ExtraRounds: 5, Length: 500 * time.Millisecond, WarmUp: 200 * time.Millisecond,
		Gate: DefaultGate, Pods: 200, Idle: 10 * time.Second}
	if err := p.choose(c); err != nil {
		return p, err
	}
	c.Paths = orDefault(c.Paths, result.CrossNode, result.SameNode)
	c.Placements = orDefault(c.Placements, result.OneCore, result.Spread)
	if err := p.addCells(c); err != nil {
		return p, err
	}
	p.finish()
	return p, nil
}

// defaultMTU is that of the wire, in bytes.
const defaultMTU = 1500

func orDefault[T any](list []T, values ...T) []T {
	if len(list) == 0 {
		return values
	}
	return list
}

// choose takes over what does not concern cells.
func (p *Plan) choose(c Choice) (err error) {
	if p.Contenders, err = contender.Select(c.Contenders); err != nil {
		return err
	}
	for _, path := range c.Paths {
		if path != result.CrossNode && path != result.SameNode {
			return fmt.Errorf("no path %q; there are: %s, %s", path, result.CrossNode, result.SameNode)
		}
	}
	for _, placement := range c.Placements {
		if placement != result.OneCore && placement != result.Spread {
			return fmt.Errorf("no placement %q; there are: %s, %s", placement, result.OneCore, result.Spread)
		}
	}
	if !c.isZero() {
		p.Mode = "custom"
	}
	p.IPv6 = c.IPv6
	if c.Rounds > 0 {
		p.Rounds = c.Rounds
		p.ExtraRounds = (c.Rounds + 1) / 2
	}
	if c.Length > 0 {
		p.Length = c.Length
	}
	return nil
}

// addCells crosses the chosen workloads, paths, placements and numbers of processes. Workloads that know one
// process only, and those in which more make no difference, get one cell.
func (p *Plan) addCells(c Choice) error {
	list, err := workload.Select(c.Workloads)
	if err != nil {
		return err
	}
	for _, w := range list {
		if m := w.Missing(); m != "" {
			return fmt.Errorf("workload %s: %s", w.Info().Name, m)
		}
		if why := w.IPv4Only(); p.IPv6 && why != "" {
			p.LeftOut = append(p.LeftOut, w.Info().Name+": "+why)
			continue
		}
		for _, path := range c.Paths {
			for _, placement := range c.Placements {
				if _, _, err := cpus(placement, allowed()); err != nil {
					return err
				}
				for _, procs := range processes(w, c.Procs) {
					p.Cells = append(p.Cells, Cell{w, path, placement, procs})
				}
			}
		}
	}
	return nil
}

func processes(w workload.Workload, chosen []int) []int {
	own := w.Processes(numCPU())
	if len(chosen) == 0 {
		return own
	}
	if len(own) == 1 {
		return own
	}
	return slices.Compact(slices.Sorted(slices.Values(chosen)))
}

// finish adds the measurements with rounds of their own: BPF run time where the plan has the workload, on
// one core with one process, and plugin calls of Beeline and of the plainest reference plugin.
func (p *Plan) finish() {
	for _, cell := range p.Cells {
		name := cell.Workload.Info().Name
		if cell.Procs == 1 && cell.Placement == result.OneCore && (name == "tcp_rr" || name == "tcp_stream_128k") {
			p.ProgramCells = append(p.ProgramCells, cell)
		}
	}
	for _, own := range p.Contenders {
		if name := own.Name(); name == "beeline" || name == "ptp" || p.Mode == "full" {
			p.FootprintOf = append(p.FootprintOf, name)
		}
	}
}
