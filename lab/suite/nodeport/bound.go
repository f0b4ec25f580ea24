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
	"github.com/beeline-cni/beeline/lab/testbed"
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
func (s *Suite) bounds(ctx context.Context) (r result.NodePort, err error) {
	r = result.NodePort{Flows: flows, Services: otherServices + 2, Routes: routes}
	m := s.newMember(network.Node)
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.OpenLab(ctx, testbed.Options{Nodes: 2, IPv6: s.IPv6, MTU: s.MTU, Outside: true}); err != nil {
		return r, err
	}
	m.backend = &testbed.Pod{Netns: m.Lab.Node(0).Netns}
	for _, a := range m.Lab.Node(0).Addresses {
		m.backend.Addresses = append(m.backend.Addresses, a.Addr())
	}
	m.findDevices()
	if err := m.devices.forwarder.takeFrames(ctx); err != nil {
		return r, err
	}
	if err := m.makeGenerator(); err != nil {
		return r, err
	}
	r.FrameBytes = m.generator.FrameLength()
	if r.OneCoreMax, err = m.bound(ctx, s.cores.measured, func() (*packetgen.Sink, error) {
		return packetgen.CountInStack(m.devices.forwarder.netns, m.devices.forwarder.name, m.counted())
	}); err != nil {
		return r, err
	}
	if err := m.devices.forwarder.thread(s.cores.measured); err != nil {
		return r, err
	}
	r.OfferedMax, err = m.bound(ctx, s.cores.other, func() (*packetgen.Sink, error) {
		return packetgen.CountOnWire(m.devices.forwarder.netns, m.devices.forwarder.name, m.counted(), "")
	})
	r.Scale = r.OfferedMax / publishedOffer
	return r, err
}

// highest is the highest rate of the published study for which there is a figure, in packets per second; the generator
// is asked for no more than the share spare of what it makes while what is forwarded is counted beside it.
const (
	highest = 4e6
	spare   = 0.7
)

// counting is the median rate that the generator makes while the counter on its CPU takes in what comes back.
func (m *member) counting(ctx context.Context) (rate float64, err error) {
	if err := errors.Join(m.arrange(result.ForwarderCore, countPackets), m.warmUp(ctx)); err != nil {
		return 0, err
	}
	var rates []float64
	for range boundTimes {
		o, err := m.offer(ctx, packetgen.Load{For: boundLength})
		if err != nil {
			return 0, err
		}
		rates = append(rates, o.Rate())
	}
	return median(rates), nil
}

// scale finds what one packet per second of the published study is on this machine: every network gets the same rates,
// so they are rates that the generator makes beside each of them.
func (s *Suite) scale(ctx context.Context, b *round.Bench) error {
	n := b.Result.NodePort
	if slices.ContainsFunc(s.Cells, func(c round.Cell) bool { return c.Workload.(figure).published > 0 }) {
		for _, m := range s.members {
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
	for _, m := range s.members {
		m.scale = n.Scale
	}
	b.Progress.Note("1 Mpps of the published study is %.0f kpps here.", n.Scale*1e3)
	return nil
}

// bound is the median rate that arrives at a sink from a generator on a CPU.
func (m *member) bound(ctx context.Context, cpu int, count func() (*packetgen.Sink, error)) (rate float64, err error) {
	if m.sink, err = count(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.closeSinks()) }()
	m.generator.On(cpu)
	var rates []float64
	for range boundTimes {
		o, err := m.offer(ctx, packetgen.Load{For: boundLength})
		if err != nil {
			return 0, err
		}
		rates = append(rates, o.rate())
	}
	return median(rates), nil
}
