// Package measure makes a bench run: it brings every network up on a lab of its own, runs all workloads
// over all of them in rounds of random order, watches the machine for noise, and takes everything down again.
// How figures are derived from the samples is package stats' business.
package measure

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Plan is everything that is decided before a run in labs on this machine.
type Plan struct {
	Schedule
	Networks []network.Network
	// MTU is that of the wire, in bytes.
	MTU int

	// ProgramCells are run once more for networks with an agent, with the kernel counting BPF run time.
	ProgramCells []Cell
	// FootprintOf names the networks of which Pods pods are added and removed one after the other.
	FootprintOf []string
	Pods        int
	// Idle is how long agents are watched while nothing happens (0: not at all).
	Idle time.Duration
}

// Validate names everything that cannot be.
func (p Plan) Validate() error {
	var errs []error
	if len(p.Networks) == 0 {
		errs = append(errs, errors.New("no networks"))
	}
	errs = append(errs, p.Schedule.Validate(), validateMTU(p.MTU))
	if p.Pods < 0 || p.Pods > 240 {
		errs = append(errs, fmt.Errorf("pods %d: want 0 to 240, a node's /24 has no room for more", p.Pods))
	}
	return errors.Join(errs...)
}

func validateMTU(mtu int) error {
	if mtu < testbed.MinMTU || mtu > testbed.MaxMTU {
		return fmt.Errorf("MTU %d: want %d to %d", mtu, testbed.MinMTU, testbed.MaxMTU)
	}
	return nil
}

// HasBaseline says whether there is what ratios are formed with.
func (p Plan) HasBaseline() bool {
	return slices.ContainsFunc(p.Networks, func(c network.Network) bool { return c.Name() == stats.Baseline })
}

// subjects are the names that take part in each round when every network comes up.
func (p Plan) subjects() []string {
	var names []string
	for _, c := range p.Networks {
		names = append(names, c.Name())
	}
	return withAgain(names)
}

// What the parts of a run take, about, on a machine of two cores. The estimate is corrected while running.
const (
	bringUp   = 900 * time.Millisecond
	takeDown  = 300 * time.Millisecond
	addAndDel = 200 * time.Millisecond
)

// Estimate is how long the run takes, about, when no round is discarded.
func (p Plan) Estimate() time.Duration {
	total := time.Duration(len(p.Networks))*(bringUp+takeDown) + p.Schedule.Estimate(len(p.subjects()))
	return total + p.afterRounds()
}

// afterRounds is the time of the measurements that have rounds of their own.
func (p Plan) afterRounds() time.Duration {
	var total time.Duration
	for _, c := range p.ProgramCells {
		total += 2 * c.Workload.Seconds(p.Length) // two networks with an agent
	}
	return total + time.Duration(len(p.FootprintOf)*p.Pods)*addAndDel + p.Idle
}
