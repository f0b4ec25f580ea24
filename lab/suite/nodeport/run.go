package nodeport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/machine"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
)

// Suite is a run of the suite.
type Suite struct {
	suite.Base
	cores   cores
	members []*member
}

// flows is how many flows the packets belong to.
const flows = 1000

// New decides what a run measures. A full one has applications too.
func New(o round.Options) (*Suite, error) {
	figures := o.Workloads
	for _, name := range figures {
		if !slices.Contains(Figures(), name) {
			return nil, fmt.Errorf("no figure %q in the suite nodeport; there are: %s", name, strings.Join(Figures(), ", "))
		}
	}
	s := &Suite{}
	var err error
	if s.Base, err = suite.NewBase(o, network.WithNodePorts()); err != nil {
		return nil, err
	}
	s.Mode = "nodeport"
	for _, cell := range cells() {
		if cell.Workload.(figure).chosen(figures, o.Full) && (len(o.Placements) == 0 || slices.Contains(o.Placements, cell.Placement)) {
			if missing := cell.Workload.Missing(); missing != "" {
				return nil, fmt.Errorf("figure %s: %s", cell.Workload.Info().Name, missing)
			}
			s.Cells = append(s.Cells, cell)
		}
	}
	s.cores, err = coresOf(round.CPUs())
	return s, err
}

// Prepare builds kube-proxy, where the run has it and it has not been built.
func (s *Suite) Prepare(ctx context.Context, print func(string, ...any)) error {
	return network.Prepare(ctx, s.Networks, print)
}

// bringUpTime is what one network takes to come up, about.
const bringUpTime = 3 * time.Second

// Estimate is about how long the run takes if no round is discarded.
func (s *Suite) Estimate() time.Duration {
	return time.Duration(len(s.Networks))*(bringUpTime+suite.TakeDownTime) + s.Schedule.Estimate(s.Subjects()) + 2*time.Second
}

// Up measures the bounds, brings up every network and finds the rates that the generator makes beside each.
func (s *Suite) Up(ctx context.Context, b *round.Bench) (field round.Field, err error) {
	b.Result.Settings.MTU = s.MTU
	b.Progress.Step("what the generator brings through a bare veth pair")
	bound, err := s.bounds(ctx)
	if err != nil {
		return field, fmt.Errorf("%w: %w", round.ErrNothing, err)
	}
	b.Result.NodePort = &bound
	b.Progress.Note("Bare veth pair: %.2f Mpps with a CPU for each end, %.2f Mpps on one.", bound.OfferedMax/1e6, bound.OneCoreMax/1e6)
	takes := func(network.Network) time.Duration { return bringUpTime }
	s.members, err = suite.BringUp(ctx, b, s.Networks, takes, func(n network.Network) (*member, error) { return s.open(ctx, n) })
	if err != nil || len(s.members) == 0 {
		return field, err
	}
	b.Result.Environment = machine.Describe(ctx)
	b.Result.Environment.CPUs = len(round.CPUs())
	b.Result.Environment.CongestionControl = s.members[0].Lab.CongestionControl
	if err := s.scale(ctx, b); err != nil {
		return field, err
	}
	return suite.Field(s.members, s.cores.other, s.cpuTime), nil
}

// cpuTime is what the NAPI threads of all labs have used: they are the bench's own.
func (s *Suite) cpuTime() (sum time.Duration) {
	for _, m := range s.members {
		sum += m.cpuTime()
	}
	return sum
}

// After measures nothing.
func (*Suite) After(context.Context, *round.Bench) error { return nil }

// Down takes down every network.
func (s *Suite) Down(_ context.Context, b *round.Bench) error { return suite.TakeDown(b, s.members) }

// Sample makes one sample of a figure.
func (m *member) Sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	s := round.NewSample(cell)
	if err := m.measure(ctx, cell, length, &s); err != nil {
		return round.Failed(s, err)
	}
	return s
}

func (m *member) measure(ctx context.Context, cell round.Cell, length time.Duration, s *result.Sample) error {
	f, ok := cell.Workload.(figure)
	if !ok {
		return fmt.Errorf("%s is no figure of the suite nodeport", cell.Workload.Info().Name)
	}
	if err := m.arrange(cell.Placement, f.packets); err != nil {
		return err
	}
	if f.packets {
		if err := m.warmUp(ctx); err != nil {
			return err
		}
	} else if err := f.tool.Serve(ctx, m.Servers[result.CrossNode], 1); err != nil {
		return err
	}
	out, err := f.sample(ctx, m, f, length)
	round.Fill(s, out)
	if s.Seconds == 0 {
		s.Seconds = length.Seconds()
	}
	return err
}

var errOther = errors.New("a figure of the suite nodeport runs there only")
