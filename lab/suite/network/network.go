// Package network is the suite that compares networks of pods: throughput, latency and CPU time of every workload, run
// time of BPF programs, times of CNI ADD and DEL, and what agents cost while nothing happens.
package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Suite is a run of the suite.
type Suite struct {
	suite.Base
	// programCells are run once more for networks with an agent, while the kernel counts BPF run time.
	programCells []round.Cell
	// footprintOf names the networks of which Pods pods are added and removed one after the other.
	footprintOf []string
	Pods        int
	// Idle is how long agents are watched while nothing happens; 0: not at all.
	Idle time.Duration

	members []*member
}

const (
	// QuickLimit is what a quick run may take in all.
	QuickLimit = 5 * time.Minute
	// reserve is kept of it for what takes longer than planned.
	reserve = 15 * time.Second
	// notQuick is the network that a quick run leaves out unless it is chosen: there would be no time for nine rounds.
	notQuick = "beeline-vxlan"
)

// New decides what a run measures. A quick one takes a few minutes, all on one core; a full one takes more than an
// hour.
func New(o round.Options) (*Suite, error) {
	s := &Suite{Pods: 20, Idle: 5 * time.Second}
	placements := round.OrDefault(o.Placements, result.OneCore)
	if o.Full {
		s.Pods, s.Idle = 200, 10*time.Second
		placements = round.OrDefault(o.Placements, result.OneCore, result.Spread)
	}
	if o.Pods != nil {
		s.Pods = *o.Pods
	}
	var err error
	if s.Base, err = suite.NewBase(o, network.All()); err != nil {
		return nil, err
	}
	if !o.Full && len(o.Networks) == 0 {
		s.Networks = slices.DeleteFunc(s.Networks, func(n network.Network) bool { return network.Original(n) == notQuick })
	}
	for _, placement := range placements {
		if _, _, err := round.EndCPUs(placement); err != nil {
			return nil, err
		}
	}
	for _, c := range round.Cells(o) {
		c.Placements = placements
		if _, err := round.Installed(c.Workloads); err != nil {
			return nil, err
		}
		if err := s.Add(c, len(round.CPUs())); err != nil {
			return nil, err
		}
	}
	s.chooseExtras()
	if s.Mode == "quick" {
		// A round begins only where it and what comes after it fit.
		after := s.Round(s.Subjects(), s.Length) + s.afterRounds() + time.Duration(len(s.Networks))*suite.TakeDownTime
		s.Until = QuickLimit - reserve - after
	}
	return s, nil
}

// chooseExtras adds the measurements after the rounds: BPF run time where the plan has the workload, on one core with
// one process, and plugin calls of Beeline and of the plainest reference plugin.
func (s *Suite) chooseExtras() {
	for _, cell := range s.Cells {
		name := cell.Workload.Info().Name
		if cell.Procs == 1 && cell.Placement == result.OneCore && (name == "tcp_rr" || name == "tcp_stream_128k") {
			s.programCells = append(s.programCells, cell)
		}
	}
	for _, name := range s.Names() {
		if name == "beeline" || name == "ptp" || s.Mode == "full" {
			s.footprintOf = append(s.footprintOf, name)
		}
	}
}

// Validate names everything that is wrong.
func (s *Suite) Validate() error {
	err := s.Base.Validate()
	if s.Pods < 0 || s.Pods > 240 {
		err = errors.Join(err, fmt.Errorf("pods %d: want 0 to 240, the capacity of a node's /24", s.Pods))
	}
	return err
}

// addAndDel is what adding and removing a pod takes, about.
const addAndDel = 200 * time.Millisecond

// Estimate is about how long the run takes if no round is discarded.
func (s *Suite) Estimate() time.Duration {
	networks := time.Duration(len(s.Networks))
	return networks*(suite.BringUpTime+suite.TakeDownTime) + s.Schedule.Estimate(s.Subjects()) + s.afterRounds()
}

// afterRounds is the time of the measurements after the rounds.
func (s *Suite) afterRounds() time.Duration {
	var total time.Duration
	for _, c := range s.programCells {
		total += 2 * c.Workload.Seconds(s.Length) // two networks with an agent
	}
	return total + time.Duration(len(s.footprintOf)*s.Pods)*addAndDel + s.Idle
}

// Up brings up every network.
func (s *Suite) Up(ctx context.Context, b *round.Bench) (round.Field, error) {
	b.Result.Settings.MTU = s.MTU
	takes := func(network.Network) time.Duration { return suite.BringUpTime }
	var err error
	s.members, err = suite.BringUp(ctx, b, s.Networks, takes, func(n network.Network) (*member, error) { return s.open(ctx, n) })
	if err != nil || len(s.members) == 0 {
		return round.Field{}, err
	}
	b.Result.Environment = suite.Describe(ctx, s.members)
	return suite.Field(s.members, suite.FirstCPU(), nil), nil
}

// After measures BPF programs and footprints.
func (s *Suite) After(ctx context.Context, b *round.Bench) error {
	if err := s.programs(ctx, b); err != nil {
		return err
	}
	return s.footprints(ctx, b)
}

// Down takes down every network.
func (s *Suite) Down(_ context.Context, b *round.Bench) error { return suite.TakeDown(b, s.members) }

// member is a network in the rounds.
type member struct{ *suite.Testbed }

// Sample runs one cell with the server of its path.
func (m *member) Sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	return m.Measure(ctx, cell, length, m.Servers[cell.Path])
}

// open brings a network up. After an error nothing of it is left.
func (s *Suite) open(ctx context.Context, n network.Network) (m *member, err error) {
	m = &member{suite.New(n)}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := m.OpenLab(ctx, testbed.Options{Nodes: 2, MTU: s.MTU, IPv6: s.IPv6}); err != nil {
		return m, err
	}
	if err := n.Up(ctx, m.Lab); err != nil {
		return m, fmt.Errorf("bring up %s: %w", n.Name(), err)
	}
	for _, pod := range []struct {
		node int
		name string
		keep func(*testbed.Pod)
	}{
		{0, "client", func(pod *testbed.Pod) { m.Client = pod }},
		{0, "near", func(pod *testbed.Pod) { m.Server[result.SameNode] = pod }},
		{1, "far", func(pod *testbed.Pod) { m.Server[result.CrossNode] = pod }},
	} {
		made, err := network.AddPod(ctx, n, m.Lab, m.Lab.Node(pod.node), pod.name)
		if err != nil {
			return m, fmt.Errorf("add pod %s of %s: %w", pod.name, n.Name(), err)
		}
		pod.keep(made)
		if err := m.Prepare(made.Netns, suite.UsualReserved); err != nil {
			return m, err
		}
	}
	for _, path := range []result.Path{result.CrossNode, result.SameNode} {
		if err := network.Verify(ctx, n, m.Client, m.Server[path]); err != nil {
			return m, fmt.Errorf("verify %s path: %w", path, err)
		}
	}
	return m, m.Serve(ctx, slices.Concat(s.Cells, s.programCells), workload.UsualPorts, s.IPv6)
}
