// Package suite has what the suites in labs share: networks brought up on labs of their own, with a client and servers.
// Each suite is a package below it and fulfils round.Suite.
package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/machine"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Base is the frame of every suite in labs: what is decided before a run, and the networks that come up for it. Suites
// embed it, with their own members or *Testbed.
type Base[M Member] struct {
	round.Schedule
	Networks []network.Network
	// MTU is that of the wire, in bytes.
	MTU int
	// Open brings a network up. After an error nothing of it is left.
	Open func(context.Context, network.Network) (M, error)
	// BringUp and Beside are about how long one network takes to come up, and for what is measured beside the rounds, on
	// a machine of two cores with nothing else to do. Progress corrects it.
	BringUp, Beside func(network.Network) time.Duration
	// OwnTime is the CPU time of others that work for the bench; nil: there are none.
	OwnTime func() time.Duration
	Members []M
}

// DefaultMTU is that of the wire, in bytes.
const DefaultMTU = 1500

// NewBase chooses the networks of a suite from those that it has.
func NewBase[M Member](o round.Options, all []network.Network) (Base[M], error) {
	b := Base[M]{Schedule: round.NewSchedule(o), MTU: DefaultMTU}
	if o.MTU != nil {
		b.MTU = *o.MTU
	}
	selected, err := network.Select(all, o.Networks)
	b.Networks = append(network.WithBuilds(selected, o.Builds), o.Others...)
	return b, err
}

// Plan is what the run is made by.
func (b *Base[M]) Plan() *round.Schedule { return &b.Schedule }

// Names are those of the networks.
func (b *Base[M]) Names() []string { return network.Names(b.Networks) }

// Limit is none: labs come and go fast.
func (*Base[M]) Limit() time.Duration { return 0 }

// Validate names everything that is wrong.
func (b *Base[M]) Validate() error {
	var errs []error
	if len(b.Networks) == 0 {
		errs = append(errs, errors.New("no networks"))
	}
	if b.MTU < testbed.MinMTU || b.MTU > testbed.MaxMTU {
		errs = append(errs, fmt.Errorf("MTU %d: want %d to %d", b.MTU, testbed.MinMTU, testbed.MaxMTU))
	}
	return errors.Join(append(errs, b.Schedule.Validate())...)
}

// Subjects is how many take part in each round if every network that can comes up.
func (b *Base[M]) Subjects() int { return len(round.WithAgain(network.Names(b.supported()))) }

func (b *Base[M]) supported() (list []network.Network) {
	for _, n := range b.Networks {
		if n.Unsupported() == "" {
			list = append(list, n)
		}
	}
	return list
}

// Estimate is about how long the run takes if no round is discarded.
func (b *Base[M]) Estimate() time.Duration {
	total := b.Schedule.Estimate(b.Subjects()) + b.beside()
	for _, n := range b.supported() {
		total += b.BringUp(n)
	}
	return total
}

func (b *Base[M]) beside() (total time.Duration) {
	for _, n := range b.supported() {
		total += b.Beside(n) + takeDownTime
	}
	return total
}

// reserve is kept of a limit for what takes longer than planned.
const reserve = 15 * time.Second

// EndWithin lets a round of a quick run begin only where it and what comes after it fit into a limit.
func (b *Base[M]) EndWithin(limit time.Duration) {
	if b.Mode == "quick" {
		b.Until = limit - reserve - b.Round(b.Subjects(), b.Length) - b.beside()
	}
}

// Member is a network that a suite has brought up.
type Member interface {
	round.Subject
	// Record describes the network for the result.
	Record(ctx context.Context) result.Network
	// Testbeds are those of the network.
	Testbeds() []*Testbed
}

// BringUpTime is what bringing up a network takes, about, and takeDownTime taking it down.
const (
	BringUpTime  = 900 * time.Millisecond
	takeDownTime = 300 * time.Millisecond
)

// Up opens every network that this machine supports, and records all of them, with the reason where one does not come
// up.
func (b *Base[M]) Up(ctx context.Context, bench *round.Bench) (field round.Field, err error) {
	bench.Result.Settings.MTU, b.Members = b.MTU, nil
	for _, n := range b.Networks {
		record := result.Network{Name: n.Name(), Description: n.Description(), Unsupported: n.Unsupported()}
		if record.Unsupported == "" {
			bench.Progress.Step("bringing up %s", n.Name())
			m, err := b.Open(ctx, n)
			if err == nil { // it has to be closed, whatever follows
				b.Members = append(b.Members, m)
			}
			switch {
			case ctx.Err() != nil:
				return field, errors.Join(ctx.Err(), err)
			case err != nil:
				bench.Progress.Note("%s does not come up: %v", n.Name(), err)
				record.Unsupported = "does not come up: " + err.Error()
			default:
				record = m.Record(ctx)
			}
		} else {
			bench.Progress.Note("%s: %s", n.Name(), record.Unsupported)
		}
		bench.Result.Networks = append(bench.Result.Networks, record)
		bench.Progress.Advance(b.BringUp(n))
	}
	if len(b.Members) == 0 {
		return field, nil
	}
	bench.Result.Environment = b.describe(ctx)
	return b.field(), nil
}

// field is the members in the rounds on this machine, with the bench's own process on the first CPU.
func (b *Base[M]) field() round.Field {
	f := round.Field{CPU: &round.CPUs()[0]}
	var cgroups []string
	for _, m := range b.Members {
		f.Subjects = append(f.Subjects, m)
		for _, t := range m.Testbeds() {
			cgroups = append(cgroups, t.cgroups()...)
		}
	}
	f.Noise = round.MachineNoise(cgroups, b.OwnTime)
	return f
}

// After measures nothing.
func (*Base[M]) After(context.Context, *round.Bench) error { return nil }

// Down takes down every network.
func (b *Base[M]) Down(_ context.Context, bench *round.Bench) error {
	var errs []error
	for _, m := range b.Members {
		for _, t := range m.Testbeds() {
			errs = append(errs, t.Close())
		}
		bench.Progress.Advance(takeDownTime)
	}
	return errors.Join(errs...)
}

// describe records the machine, as the testbed of the first member shows it. What it cannot read it leaves out.
func (b *Base[M]) describe(ctx context.Context) result.Environment {
	e := machine.Describe(ctx)
	e.CPUs = len(round.CPUs())
	first := b.Members[0].Testbeds()[0]
	machine.DescribeNetns(&e, first.Server[result.CrossNode].Netns)
	for _, m := range b.Members {
		if s, err := m.Testbeds()[0].AgentStatus(ctx, 0); err == nil {
			for _, f := range s.Features {
				e.Features[f.Name] = f.Present
			}
		}
	}
	return e
}

// HasBaseline reports whether a suite has the network that ratios are formed with.
func HasBaseline(s round.Suite) bool { return slices.Contains(s.Names(), stats.Baseline) }
