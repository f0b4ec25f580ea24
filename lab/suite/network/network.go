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
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Suite is a run of the suite.
type Suite struct {
	suite.Base[*suite.Testbed]
	// programCells are run once more for networks with an agent, while the kernel counts BPF run time.
	programCells []round.Cell
	// footprintOf names the networks of which Pods pods are added and removed one after the other.
	footprintOf []string
	Pods        int
	// Idle is how long agents are watched while nothing happens; 0: not at all.
	Idle time.Duration
}

const (
	// QuickLimit is what a quick run may take in all.
	QuickLimit = 5 * time.Minute
)

// notQuick are the networks that a quick run leaves out unless they are chosen: there would be no time for nine rounds.
var notQuick = []string{"beeline-vxlan", "beeline-routed"}

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
	if s.Base, err = suite.NewBase[*suite.Testbed](o, network.All()); err != nil {
		return nil, err
	}
	if !o.Full && len(o.Networks) == 0 {
		s.Networks = slices.DeleteFunc(s.Networks, func(n network.Network) bool { return slices.Contains(notQuick, network.Original(n)) })
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
	s.Open, s.BringUp, s.Beside = s.open, func(network.Network) time.Duration { return suite.BringUpTime }, s.beside
	s.EndWithin(QuickLimit - s.Idle)
	return s, nil
}

// chooseExtras adds the measurements after the rounds: BPF run time where the plan has the workload, on one core with
// one process, and plugin calls of Beeline and its other builds, with IPPools too, of networks of others, and of the
// plainest reference plugin.
func (s *Suite) chooseExtras() {
	for _, cell := range s.Cells {
		name := cell.Workload.Info().Name
		if cell.Procs == 1 && cell.Placement == result.OneCore && (name == "tcp_rr" || name == "tcp_stream_128k") {
			s.programCells = append(s.programCells, cell)
		}
	}
	for _, n := range s.Networks {
		_, outside := n.(network.Outsider)
		if name := network.Original(n); name == "beeline" || name == "ptp" || outside || network.HasPools(n) || s.Mode == "full" {
			s.footprintOf = append(s.footprintOf, n.Name())
		}
	}
}

// Validate names everything that is wrong.
func (s *Suite) Validate() error {
	err := s.Base.Validate()
	if s.Pods < 0 || s.Pods > 200 {
		err = errors.Join(err, fmt.Errorf("pods %d: want 0 to 200, for which an IPPool on the wire has addresses", s.Pods))
	}
	return err
}

// Estimate is about how long the run takes if no round is discarded.
func (s *Suite) Estimate() time.Duration { return s.Base.Estimate() + s.Idle }

// beside is the time of the measurements of one network after the rounds.
func (s *Suite) beside(n network.Network) (total time.Duration) {
	if _, hasAgent := n.(network.Beeline); hasAgent {
		for _, c := range s.programCells {
			total += c.Workload.Seconds(s.Length)
		}
	}
	if slices.Contains(s.footprintOf, n.Name()) {
		total += s.crowdTakes(n)
	}
	return total
}

// After measures BPF programs and footprints.
func (s *Suite) After(ctx context.Context, b *round.Bench) error {
	if err := s.programs(ctx, b); err != nil {
		return err
	}
	return s.footprints(ctx, b)
}

// open brings a network up. After an error nothing of it is left.
func (s *Suite) open(ctx context.Context, n network.Network) (*suite.Testbed, error) {
	o := testbed.Options{Nodes: 2, MTU: s.MTU, IPv6: s.IPv6}
	return suite.Open(ctx, n, o, func(t *suite.Testbed) error { return s.fill(ctx, t) })
}

// fill brings up what there is in a lab: a client, a server beside it, and another one on the other node.
func (s *Suite) fill(ctx context.Context, t *suite.Testbed) error {
	if network.NeedsAPIServer(t.Network) {
		if err := t.ServeObjects(ctx, policies.Namespace(policies.Default, nil)); err != nil {
			return err
		}
	}
	if err := t.Up(ctx); err != nil {
		return err
	}
	for _, pod := range []struct {
		node int
		name string
		keep func(*testbed.Pod)
	}{
		{0, "client", func(pod *testbed.Pod) { t.Client = pod }},
		{0, "near", func(pod *testbed.Pod) { t.Server[result.SameNode] = pod }},
		{1, "far", func(pod *testbed.Pod) { t.Server[result.CrossNode] = pod }},
	} {
		made, err := t.AddPod(ctx, pod.node, policies.Pod{Namespace: policies.Default, Name: pod.name})
		if err != nil {
			return err
		}
		pod.keep(made)
		if err := t.Prepare(made.Netns, suite.UsualReserved); err != nil {
			return err
		}
	}
	if err := t.Verify(ctx); err != nil {
		return err
	}
	return t.Serve(ctx, slices.Concat(s.Cells, s.programCells), workload.UsualPorts, s.IPv6)
}
