package nodeport

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
)

// Suite is a run of the suite.
type Suite struct {
	suite.Base[*member]
	cores cores
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
	if s.Base, err = suite.NewBase[*member](o, network.WithNodePorts()); err != nil {
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
	s.Open, s.BringUp, s.OwnTime = s.open, func(network.Network) time.Duration { return bringUpTime }, s.cpuTime
	s.Beside = func(network.Network) time.Duration { return 0 }
	s.cores, err = coresOf(round.CPUs())
	return s, err
}

// Prepare builds kube-proxy, where the run has it and it has not been built.
func (s *Suite) Prepare(ctx context.Context, print func(string, ...any)) error {
	return network.Prepare(ctx, s.Networks, print)
}

// bringUpTime is what one network takes to come up, about.
const bringUpTime = 3 * time.Second

// Up measures the bounds, brings up every network and finds the rates that the generator makes beside each.
func (s *Suite) Up(ctx context.Context, b *round.Bench) (round.Field, error) {
	b.Progress.Step("what the generator brings through a bare veth pair")
	bound, err := s.bounds(ctx)
	if err != nil {
		return round.Field{}, fmt.Errorf("%w: %w", round.ErrNothing, err)
	}
	b.Result.NodePort = &bound
	b.Progress.Note("Bare veth pair: %.2f Mpps with a CPU for each end, %.2f Mpps on one.", bound.OfferedMax/1e6, bound.OneCoreMax/1e6)
	field, err := s.Base.Up(ctx, b)
	if err != nil || len(s.Members) == 0 {
		return field, err
	}
	field.CPU = &s.cores.other
	return field, s.scale(ctx, b)
}

// cpuTime is what the NAPI threads of all labs have used: they are the bench's own.
func (s *Suite) cpuTime() (sum time.Duration) {
	for _, m := range s.Members {
		sum += m.cpuTime()
	}
	return sum
}

// Sample makes one sample of a figure.
func (m *member) Sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	s := round.NewSample(cell)
	if err := m.measure(ctx, cell, length, &s); err != nil {
		return round.Failed(s, err)
	}
	return s
}

func (m *member) measure(ctx context.Context, cell round.Cell, length time.Duration, s *result.Sample) error {
	f := cell.Workload.(figure)
	if err := m.arrange(cell.Placement, f.packets()); err != nil {
		return err
	}
	if f.packets() {
		if err := m.warmUp(ctx); err != nil {
			return err
		}
	} else if err := f.Serve(ctx, m.Servers[result.CrossNode], 1); err != nil {
		return err
	}
	out, err := f.sample(ctx, m, length)
	round.Fill(s, out)
	if s.Seconds == 0 {
		s.Seconds = length.Seconds()
	}
	return err
}
