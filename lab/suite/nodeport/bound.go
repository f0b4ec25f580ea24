package nodeport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
)

// publishedOffer is what was offered in the published study, in packets per second.
const publishedOffer = 10e6

// boundLength is how long each bound is measured, boundTimes how often; the median counts.
const (
	boundLength = 300 * time.Millisecond
	boundTimes  = 3
)

// bounds measures what the generator brings through a bare veth pair, in a lab of its own without any network: with a
// CPU for each end, counted at XDP, and with both on one CPU, counted at tc, where the stack would begin.
func (s *Suite) bounds(ctx context.Context) (result.NodePort, error) {
	r := result.NodePort{Flows: flows, Services: otherServices + 2, Routes: routes}
	m, err := s.openLab(ctx, network.Node, func(m *member) error { return m.bounds(ctx, &r) })
	if err != nil {
		return r, err
	}
	return r, m.Close()
}

func (m *member) bounds(ctx context.Context, r *result.NodePort) (err error) {
	m.backend = network.NodeAsPod(m.forwarder(), "backend", m.Lab.MTU)
	forwarder := m.devices.forwarder
	if err := forwarder.takeFrames(ctx); err != nil {
		return err
	}
	if err := m.makeGenerator(); err != nil {
		return err
	}
	r.FrameBytes = m.generator.FrameLength()
	if m.sink, err = packetgen.CountInStack(forwarder.netns, forwarder.name, m.counted()); err != nil {
		return err
	}
	if r.OneCoreMax, err = m.bound(ctx, m.cores.measured); err != nil {
		return err
	}
	if err := forwarder.thread(m.cores.measured); err != nil {
		return err
	}
	if m.sink, err = packetgen.CountOnWire(forwarder.netns, forwarder.name, m.counted(), ""); err != nil {
		return err
	}
	r.OfferedMax, err = m.bound(ctx, m.cores.other)
	r.Scale = r.OfferedMax / publishedOffer
	return err
}

// bound is the median rate that arrives at the sink from a generator on a CPU. The sink is closed then.
func (m *member) bound(ctx context.Context, cpu int) (float64, error) {
	m.generator.On(cpu)
	rate, err := m.median(ctx, outcome.rate)
	return rate, errors.Join(err, m.closeSinks())
}

// median is the median of what several short loads at full speed give.
func (m *member) median(ctx context.Context, of func(outcome) float64) (float64, error) {
	var rates [boundTimes]float64
	for i := range rates {
		o, err := m.offer(ctx, packetgen.Load{For: boundLength})
		if err != nil {
			return 0, err
		}
		rates[i] = of(o)
	}
	slices.Sort(rates[:])
	return rates[boundTimes/2], nil
}

// highest is the highest rate of the published study for which there is a figure, in packets per second; the generator
// is asked for no more than the share spare of what it makes while what is forwarded is counted beside it.
const (
	highest = 4e6
	spare   = 0.7
)

// counting is the median rate that the generator makes while the counter on its CPU takes in what comes back.
func (m *member) counting(ctx context.Context) (float64, error) {
	if err := errors.Join(m.arrange(result.ForwarderCore, countPackets), m.warmUp(ctx)); err != nil {
		return 0, err
	}
	return m.median(ctx, func(o outcome) float64 { return o.Rate() })
}

// scale finds what one packet per second of the published study is on this machine: every network gets the same rates,
// so they are rates that the generator makes beside each of them.
func (s *Suite) scale(ctx context.Context, b *round.Bench) error {
	n := b.Result.NodePort
	if slices.ContainsFunc(s.Cells, func(c round.Cell) bool { return c.Workload.(figure).published > 0 }) {
		for _, m := range s.Members {
			rate, err := m.counting(ctx)
			if err != nil {
				return fmt.Errorf("find rates that the generator makes beside %s: %w", m.Name(), err)
			}
			if n.CountingMax == 0 || rate < n.CountingMax {
				n.CountingMax = rate
			}
		}
		n.Scale = min(n.Scale, spare*n.CountingMax/highest)
	}
	for _, m := range s.Members {
		m.scale = n.Scale
	}
	b.Progress.Note("1 Mpps of the published study is %.0f kpps here.", n.Scale*1e3)
	return nil
}
