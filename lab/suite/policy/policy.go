// Package policy is the suite that compares networks with NetworkPolicies: what policies cost, whether they are
// enforced, and how long changes of them take.
package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
)

// Suite is a run of the suite.
type Suite struct {
	suite.Base[*member]
	// Changes of each kind are made for each network that has them timed, as many as begin within ChangesFor.
	Changes    int
	ChangesFor time.Duration
	// Compiles is how often all policies are compiled from nothing, where that is timed.
	Compiles int
}

// Workloads are those of the suite.
var Workloads = []string{"tcp_stream_128k", "tcp_rr", "tcp_crr"}

const (
	// QuickLimit is what a quick run may take in all.
	QuickLimit = 11 * time.Minute
	// A run has more rounds than those of other suites: the differences are about a hundredth.
	quickRounds, fullRounds = 15, 30
)

// New decides what a run measures; a quick one takes about ten minutes.
func New(o round.Options) (*Suite, error) {
	s := &Suite{Changes: 100, ChangesFor: 40 * time.Second, Compiles: 3}
	rounds := quickRounds
	if o.Full {
		s.Changes, s.ChangesFor, s.Compiles = 200, 2*time.Minute, 10
		rounds = fullRounds
	}
	var err error
	if s.Base, err = suite.NewBase[*member](o, network.WithPolicies()); err != nil {
		return nil, err
	}
	if o.Rounds == 0 {
		s.Rounds, s.ExtraRounds = rounds, rounds
	}
	o.Workloads = round.OrDefault(o.Workloads, Workloads...)
	for _, name := range o.Workloads {
		if !slices.Contains(Workloads, name) {
			return nil, fmt.Errorf("workload %s is not one of the suite policy; those are: %s", name, strings.Join(Workloads, ", "))
		}
	}
	placement, workloads, err := round.OnePath(o, "policy")
	if err != nil {
		return nil, err
	}
	for _, w := range workloads {
		s.Cells = append(s.Cells, round.Cell{Workload: w, Path: result.CrossNode, Placement: placement, Procs: 1})
	}
	s.Open, s.BringUp, s.Beside = s.open, bringUp, s.beside
	s.EndWithin(QuickLimit)
	return s, nil
}

// Validate names everything that is wrong.
func (s *Suite) Validate() error {
	if s.IPv6 {
		return errors.Join(errors.New("the suite policy has IPv4 only"), s.Base.Validate())
	}
	return s.Base.Validate()
}

// What the parts take, about, on a machine of two cores with nothing else to do.
const (
	bringUpTime      = 3 * time.Second
	addPodTime       = 60 * time.Millisecond
	connectivityTime = 6 * time.Second
	changeTime       = 150 * time.Millisecond
	compileTime      = 3 * time.Second
)

// bringUp is how long one network takes to come up.
func bringUp(n network.Network) time.Duration {
	if enforcer, ok := n.(network.PolicyEnforcer); ok && enforcer.Watches() && enforcer.Present() == policies.AmongMany {
		return bringUpTime + policies.LocalOthers*addPodTime
	}
	return bringUpTime
}

// beside is what one network takes after the rounds.
func (s *Suite) beside(n network.Network) time.Duration {
	enforcer, ok := n.(network.PolicyEnforcer)
	switch {
	case !ok:
		return 0
	case timesChanges(enforcer):
		return connectivityTime + s.changesTake(enforcer) + time.Duration(s.Compiles)*compileTime
	}
	return connectivityTime
}

// changesFor is how long changes of a pair of kinds may begin: half as long for a network that applies all policies
// anew with each, which is slow.
func (s *Suite) changesFor(n network.PolicyEnforcer) time.Duration {
	if !n.Watches() {
		return s.ChangesFor / 2
	}
	return s.ChangesFor
}

// changesTake is about how long all changes of one network take.
func (s *Suite) changesTake(n network.PolicyEnforcer) time.Duration {
	kinds := time.Duration(len(changeKinds))
	return min(kinds/2*s.changesFor(n), kinds*time.Duration(s.Changes)*changeTime)
}

// Up brings up every network, and records the policy tables of those that have them.
func (s *Suite) Up(ctx context.Context, b *round.Bench) (round.Field, error) {
	b.Result.Settings.Suite = "policy"
	b.Result.Policy = &result.Policy{Policies: policies.Many, Pods: policies.Many, IPBlocks: policies.MostBlocks}
	field, err := s.Base.Up(ctx, b)
	for _, m := range s.Members {
		if m.tables != nil {
			b.Result.Policy.Tables = append(b.Result.Policy.Tables, *m.tables)
		}
	}
	return field, err
}

// After tests which connections every network allows, and times changes.
func (s *Suite) After(ctx context.Context, b *round.Bench) error {
	if err := s.connectivity(ctx, b); err != nil {
		return err
	}
	return s.changes(ctx, b)
}

// connectivity tests every network that enforces policies with the same ones.
func (s *Suite) connectivity(ctx context.Context, b *round.Bench) error {
	for _, m := range s.Members {
		if m.enforcer == nil {
			continue
		}
		b.Progress.Step("which connections work: %s", m.Name())
		connections, err := m.connections(ctx)
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		r := result.Connectivity{Network: m.Name(), Connections: connections}
		if err != nil {
			b.Progress.Note("which connections work with %s: %v", r.Network, err)
			r.Error = err.Error()
		}
		wrong, unknown := count(connections)
		if wrong > 0 {
			b.Progress.Note("%s: %d of %d connections are not as they have to be", r.Network, wrong, len(connections))
		}
		if unknown > 0 {
			b.Progress.Note("%s: of %d of %d connections it is not known whether they work", r.Network, unknown, len(connections))
		}
		b.Result.Policy.Connectivity = append(b.Result.Policy.Connectivity, r)
		b.Progress.Advance(connectivityTime)
	}
	return nil
}

// count returns how many connections are not as they have to be, and how many are not known.
func count(connections []result.Connection) (wrong, unknown int) {
	for _, c := range connections {
		switch {
		case c.Unknown != "":
			unknown++
		case c.Connected != c.Allowed:
			wrong++
		}
	}
	return wrong, unknown
}
