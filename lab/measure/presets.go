package measure

import (
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/workload"
)

// QuickLimit is what a quick run may take in all.
const QuickLimit = 5 * time.Minute

// reserve is kept of QuickLimit for what takes longer than planned.
const reserve = 15 * time.Second

// Quick is the plan of a few minutes: what separates networks most, all on one core. With nine rounds the
// 95 % interval of a median leaves out the extreme values on both sides; with seven it is the whole range.
func Quick(c Choice) (Plan, error) {
	p := Plan{Schedule: QuickSchedule(c), MTU: defaultMTU, Pods: 20, Idle: 5 * time.Second}
	if len(c.Networks) == 0 {
		c.Networks = slices.DeleteFunc(network.Names(), func(name string) bool { return name == notQuick })
	}
	if err := p.choose(c); err != nil {
		return p, err
	}
	c.Placements = orDefault(c.Placements, result.OneCore)
	if err := p.addCells(QuickCells(c)...); err != nil {
		return p, err
	}
	p.finish()
	if p.Mode == "quick" {
		// A round begins only where it and what comes after it fit.
		after := p.round(len(p.subjects()), p.Length) + p.afterRounds() + time.Duration(len(p.Networks))*takeDown
		p.Until = QuickLimit - reserve - after
	}
	return p, nil
}

// notQuick is the network that a quick run leaves out unless it is asked for: there would be no time for nine rounds.
const notQuick = "beeline-vxlan"

// Full is the plan of everything, both placements; it takes more than an hour.
func Full(c Choice) (Plan, error) {
	p := Plan{Schedule: FullSchedule(c), MTU: defaultMTU, Pods: 200, Idle: 10 * time.Second}
	if err := p.choose(c); err != nil {
		return p, err
	}
	c.Placements = orDefault(c.Placements, result.OneCore, result.Spread)
	if err := p.addCells(FullCells(c)...); err != nil {
		return p, err
	}
	p.finish()
	return p, nil
}

// defaultMTU is that of the wire, in bytes.
const defaultMTU = 1500

// choose takes over what does not concern cells.
func (p *Plan) choose(c Choice) (err error) {
	if p.Networks, err = network.Select(c.Networks); err != nil {
		return err
	}
	p.Networks = network.WithBuilds(p.Networks, c.Builds)
	for _, placement := range c.Placements {
		if placement != result.OneCore && placement != result.Spread {
			return fmt.Errorf("no placement %q; there are: %s, %s", placement, result.OneCore, result.Spread)
		}
	}
	return nil
}

// addCells adds the cells of several choices, and refuses what cannot be run on this machine.
func (p *Plan) addCells(choices ...Choice) error {
	for _, c := range choices {
		list, err := workload.Select(c.Workloads)
		if err != nil {
			return err
		}
		for _, w := range list {
			if m := w.Missing(); m != "" {
				return fmt.Errorf("workload %s: %s", w.Info().Name, m)
			}
		}
		for _, placement := range c.Placements {
			if _, _, err := cpus(placement, allowed()); err != nil {
				return err
			}
		}
		if err := p.Add(c, numCPU()); err != nil {
			return err
		}
	}
	return nil
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
	for _, own := range p.Networks {
		if name := own.Name(); name == "beeline" || name == "ptp" || p.Mode == "full" {
			p.FootprintOf = append(p.FootprintOf, name)
		}
	}
}
