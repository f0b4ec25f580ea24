// Package suite has what the suites in labs share: networks brought up on labs of their own, with a client and servers.
// Each suite is a package below it and fulfils round.Suite.
package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/machine"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Base is what every suite in labs decides before a run. Suites embed it.
type Base struct {
	round.Schedule
	Networks []network.Network
	// MTU is that of the wire, in bytes.
	MTU int
}

// DefaultMTU is that of the wire, in bytes.
const DefaultMTU = 1500

// NewBase chooses the networks of a suite from those that it has.
func NewBase(o round.Options, all []network.Network) (Base, error) {
	b := Base{Schedule: round.NewSchedule(o), MTU: DefaultMTU}
	if o.MTU != nil {
		b.MTU = *o.MTU
	}
	selected, err := network.Select(all, o.Networks)
	b.Networks = network.WithBuilds(selected, o.Builds)
	return b, err
}

// Plan is what the run is made by.
func (b *Base) Plan() *round.Schedule { return &b.Schedule }

// Names are those of the networks.
func (b *Base) Names() []string { return network.Names(b.Networks) }

// Limit is none: labs come and go fast.
func (*Base) Limit() time.Duration { return 0 }

// Validate names everything that is wrong.
func (b *Base) Validate() error {
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
func (b *Base) Subjects() int { return len(round.WithAgain(network.Names(b.supported()))) }

func (b *Base) supported() (list []network.Network) {
	for _, n := range b.Networks {
		if n.Unsupported() == "" {
			list = append(list, n)
		}
	}
	return list
}

// Supported is the sum of a time over the networks that this machine supports.
func (b *Base) Supported(each func(network.Network) time.Duration) (total time.Duration) {
	for _, n := range b.supported() {
		total += each(n)
	}
	return total
}

// Member is a network that a suite has brought up.
type Member interface {
	round.Subject
	// Record describes the network for the result.
	Record(ctx context.Context) result.Network
	// Cgroups are those in which everything of the network's lab runs.
	Cgroups() []string
	// Close takes down everything of the member, whatever its state.
	Close() error
}

// What bringing up and taking down a network takes, about, on a machine of two cores. Progress corrects it.
const (
	BringUpTime  = 900 * time.Millisecond
	TakeDownTime = 300 * time.Millisecond
)

// BringUp opens every network that this machine supports and records all of them, with the reason where one does not
// come up. It returns the members that are open, also with an error. takes is how long a network takes, about.
func BringUp[M Member](ctx context.Context, b *round.Bench, networks []network.Network, takes func(network.Network) time.Duration, open func(network.Network) (M, error)) (members []M, err error) {
	for _, n := range networks {
		record := Unsupported(n, n.Unsupported())
		if record.Unsupported == "" {
			b.Progress.Step("bringing up %s", n.Name())
			m, err := open(n)
			if err == nil { // it has to be closed, whatever follows
				members = append(members, m)
			}
			switch {
			case ctx.Err() != nil:
				return members, errors.Join(ctx.Err(), err)
			case err != nil:
				b.Progress.Note("%s does not come up: %v", n.Name(), err)
				record.Unsupported = "does not come up: " + err.Error()
			default:
				record = m.Record(ctx)
			}
		} else {
			b.Progress.Note("%s: %s", n.Name(), record.Unsupported)
		}
		b.Result.Networks = append(b.Result.Networks, record)
		b.Progress.Advance(takes(n))
	}
	return members, nil
}

// Unsupported is the record of a network that does not take part for this reason.
func Unsupported(n network.Network, reason string) result.Network {
	return result.Network{Name: n.Name(), Description: n.Description(), Unsupported: reason}
}

// TakeDown closes members.
func TakeDown[M Member](b *round.Bench, members []M) error {
	var errs []error
	for _, m := range members {
		errs = append(errs, m.Close())
		b.Progress.Advance(TakeDownTime)
	}
	return errors.Join(errs...)
}

// Field is the members in the rounds on this machine, with the bench's own process on a CPU. ownTime is the CPU time of
// others that work for the bench; nil: there are none.
func Field[M Member](members []M, cpu int, ownTime func() time.Duration) round.Field {
	f := round.Field{CPU: &cpu}
	var cgroups []string
	for _, m := range members {
		f.Subjects = append(f.Subjects, m)
		cgroups = append(cgroups, m.Cgroups()...)
	}
	f.Noise = round.MachineNoise(cgroups, ownTime)
	return f
}

// FirstCPU is where the bench's own process stays in most suites.
func FirstCPU() int { return round.CPUs()[0] }

// Describe records the machine, as the testbed of the first member shows it. What it cannot read it leaves out.
func Describe[M interface{ testbed() *Testbed }](ctx context.Context, members []M) result.Environment {
	e := machine.Describe(ctx)
	e.CPUs = len(round.CPUs())
	if len(members) == 0 {
		return e
	}
	machine.DescribeNetns(&e, members[0].testbed().Client.Netns)
	for _, m := range members {
		t := m.testbed()
		if socket := network.AgentSocket(t.Network, t.Lab.Node(0)); socket != "" {
			if s, err := agentapi.NewClient(socket).Status(ctx); err == nil {
				for _, f := range s.Features {
					e.Features[f.Name] = f.Present
				}
			}
		}
	}
	return e
}

// MapBytes is what the BPF maps of a node's agent hold; 0 for networks without agents.
func MapBytes(ctx context.Context, n network.Network, node *testbed.Node) (sum uint64, err error) {
	socket := network.AgentSocket(n, node)
	if socket == "" {
		return 0, nil
	}
	s, err := agentapi.NewClient(socket).Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask agent for its maps: %w", err)
	}
	for _, m := range s.Maps {
		sum += m.Bytes
	}
	return sum, nil
}

// HasBaseline reports whether a suite has the network that ratios are formed with.
func HasBaseline(s round.Suite) bool { return slices.Contains(s.Names(), stats.Baseline) }
