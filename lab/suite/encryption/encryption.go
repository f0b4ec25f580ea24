// Package encryption is the suite that compares networks which encrypt packets between nodes: Beeline and the kernel's
// own WireGuard and IPsec, on wires with a small and a large MTU.
package encryption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Suite is a run of the suite.
type Suite struct {
	suite.Base[*member]
	// MTUs are those of the wires: each network comes up once for each.
	MTUs []int
	// maximum is what the rate of the paced streams is a tenth of.
	maximum round.Cell
	// paced has the rate of the paced streams by MTU, in Gbit/s.
	paced map[int]float64
	bench *round.Bench
}

const (
	// stream is the workload whose maximum counts.
	stream = "tcp_stream_128k"
	// QuickLimit is what a quick run may take in all.
	QuickLimit = 12 * time.Minute
)

// Workloads are those of the suite.
var Workloads = []string{stream, workload.PacedName, "tcp_rr", "tcp_crr"}

// New decides what a run measures; a quick one takes about ten minutes. Streams have a CPU for each end, where there are
// two: WireGuard encrypts on all CPUs, wherever its packets come from. Requests are on one core, as in other suites.
func New(o round.Options) (*Suite, error) {
	s := &Suite{MTUs: []int{suite.DefaultMTU, 9000}, paced: map[int]float64{}}
	var err error
	if s.Base, err = suite.NewBase[*member](o, network.WithEncryption()); err != nil {
		return nil, err
	}
	chosen := round.OrDefault(o.Workloads, Workloads...)
	for _, name := range chosen {
		if !slices.Contains(Workloads, name) {
			return nil, fmt.Errorf("workload %s is not one of the suite encryption; those are: %s", name, strings.Join(Workloads, ", "))
		}
	}
	o.Workloads = []string{stream}
	_, streams, err := round.OnePath(o, "encryption")
	if err != nil {
		return nil, err
	}
	s.maximum = round.Cell{Workload: streams[0], Path: result.CrossNode, Procs: 1}
	if s.maximum.Placement, err = placementOf(o, stream); err != nil {
		return nil, err
	}
	for _, mtu := range s.MTUs {
		for _, name := range Workloads {
			if !slices.Contains(chosen, name) {
				continue
			}
			w, err := workloadNamed(name)
			if err != nil {
				return nil, err
			}
			placement, err := placementOf(o, name)
			if err != nil {
				return nil, err
			}
			s.Cells = append(s.Cells, round.Cell{Workload: workload.AtMTU{Workload: w, MTU: mtu}, Path: result.CrossNode, Placement: placement, Procs: 1})
		}
	}
	s.MTU = slices.Max(s.MTUs)
	s.Open, s.Beside, s.OwnTime = s.open, func(network.Network) time.Duration { return 0 }, procstat.KernelWorkers
	s.BringUp = func(n network.Network) time.Duration { return time.Duration(len(s.MTUs)) * (bringUpTime + s.Length) }
	s.EndWithin(QuickLimit)
	return s, nil
}

// bringUpTime is what one network takes on one wire, about, with the capture on it.
const bringUpTime = 3 * time.Second

func workloadNamed(name string) (workload.Workload, error) {
	if name != workload.PacedName {
		list, err := round.Installed([]string{name})
		if err != nil {
			return nil, err
		}
		return list[0], nil
	}
	w := workload.NewPaced(0)
	if missing := w.Missing(); missing != "" {
		return nil, fmt.Errorf("workload %s: %s", name, missing)
	}
	return w, nil
}

// placementOf is where the ends of a workload are.
func placementOf(o round.Options, name string) (result.Placement, error) {
	placement := result.OneCore
	if name == stream || name == workload.PacedName {
		placement = result.Spread
	}
	if len(o.Placements) > 0 {
		placement = o.Placements[0]
	} else if len(round.CPUs()) < 2 {
		placement = result.OneCore
	}
	_, _, err := round.EndCPUs(placement)
	return placement, err
}

// Validate names everything that is wrong.
func (s *Suite) Validate() error {
	err := s.Base.Validate()
	if s.IPv6 {
		err = errors.Join(errors.New("the suite encryption has IPv4 only"), err)
	}
	return err
}

// Up brings up every network once for each MTU, and finds the rate of the paced streams.
func (s *Suite) Up(ctx context.Context, b *round.Bench) (round.Field, error) {
	b.Result.Settings.Suite = "encryption"
	b.Result.Encryption = &result.Encryption{OneCPU: len(round.CPUs()) < 2}
	s.bench = b
	field, err := s.Base.Up(ctx, b)
	b.Result.Settings.MTU = 0 // each workload has its own
	if err != nil {
		return field, err
	}
	return field, s.pace(ctx)
}

// pace measures the maximum of every network once, and holds the paced streams of all to a tenth of the least.
func (s *Suite) pace(ctx context.Context) error {
	if !slices.ContainsFunc(s.Cells, isPaced) {
		return nil
	}
	for _, mtu := range s.MTUs {
		rate := result.EncryptionRate{MTU: mtu}
		for _, m := range s.Members {
			sample := m.byMTU[mtu].Sample(ctx, s.maximum, s.Length)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if sample.Error != "" {
				s.bench.Progress.Note("maximum of %s with MTU %d is not known: %s", m.Name(), mtu, sample.Error)
			} else if v := sample.Values[result.Throughput]; rate.Slowest == "" || v < rate.Maximum {
				rate.Maximum, rate.Slowest = v, m.Name()
			}
			s.bench.Progress.Advance(s.Length)
		}
		rate.Rate = rate.Maximum / 10
		s.paced[mtu] = rate.Rate
		s.bench.Result.Encryption.Paced = append(s.bench.Result.Encryption.Paced, rate)
	}
	return nil
}

// isPaced reports whether a cell is one of the paced streams.
func isPaced(c round.Cell) bool {
	at, ok := c.Workload.(workload.AtMTU)
	if !ok {
		return false
	}
	_, ok = at.Workload.(workload.Paced)
	return ok
}
