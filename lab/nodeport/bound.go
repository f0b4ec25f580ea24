package nodeport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/measure"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// publishedOffer is what was offered in the published study, in packets per second.
const publishedOffer = 10e6

// boundLength is how long each bound is measured; it is asked for boundTimes, and the median counts.
const (
	boundLength = 300 * time.Millisecond
	boundTimes  = 3
)

// bounds finds out what the generator brings through a bare veth pair, in a lab of its own without any network: with a
// CPU for each end, counted at XDP, and with both on one CPU, counted at tc, where the stack would begin.
func bounds(ctx context.Context, p Plan) (r result.NodePort, err error) {
	r = result.NodePort{Flows: p.Flows, Services: otherServices + 2, Routes: ways}
	lab, err := testbed.Up(ctx, testbed.Options{Name: fmt.Sprintf("np%d-bound", os.Getpid()), Nodes: 2, IPv6: p.IPv6, MTU: p.MTU, Outside: true})
	if err != nil {
		return r, fmt.Errorf("bring up lab of the bound: %w", err)
	}
	defer func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		defer cancel()
		err = errors.Join(err, lab.Down(undo))
	}()
	b := &Testbed{network: network.Node{}, ipv6: p.IPv6, lab: lab, cores: p.cores, backend: &testbed.Pod{Netns: lab.Node(0).Netns}}
	for _, a := range lab.Node(0).Addresses {
		b.backend.Addresses = append(b.backend.Addresses, a.Addr())
	}
	b.findDevices()
	if err := b.devices.forwarder.takeFrames(ctx); err != nil {
		return r, err
	}
	if err := b.makeGenerator(p.Flows); err != nil {
		return r, err
	}
	defer b.generator.Close()
	r.FrameBytes = b.generator.FrameLength()
	if r.OneCoreMax, err = b.bound(ctx, p.cores.measured, func() (*packetgen.Sink, error) {
		return packetgen.CountInStack(b.devices.forwarder.place, b.devices.forwarder.name, b.counted())
	}); err != nil {
		return r, err
	}
	if err := b.devices.forwarder.thread(p.cores.measured); err != nil {
		return r, err
	}
	r.OfferedMax, err = b.bound(ctx, p.cores.other, func() (*packetgen.Sink, error) {
		return packetgen.CountOnWire(b.devices.forwarder.place, b.devices.forwarder.name, b.counted(), "")
	})
	r.Scale = r.OfferedMax / publishedOffer
	return r, err
}

// highest is the highest rate of the published study for which there is a figure, in packets per second; the generator is
// asked for no more than the share spare of what it makes while what is forwarded is counted beside it.
const (
	highest = 4e6
	spare   = 0.7
)

// counting is the median rate that the generator makes while the counter on its CPU takes in what comes back.
func (b *Testbed) counting(ctx context.Context) (rate float64, err error) {
	if err := errors.Join(b.arrange(result.ForwarderCore, countPackets), b.warmUp(ctx)); err != nil {
		return 0, err
	}
	var rates []float64
	for range boundTimes {
		o, err := b.offer(ctx, packetgen.Load{For: boundLength})
		if err != nil {
			return 0, err
		}
		rates = append(rates, o.Rate())
	}
	return median(rates), nil
}

// scale settles what one packet per second of the published study is on this machine: every network gets the same rates,
// so they are rates that the generator makes beside each of them.
func (r *runner) scale(ctx context.Context) error {
	n := r.run.NodePort
	if slices.ContainsFunc(r.plan.Cells, func(c measure.Cell) bool { return c.Workload.(figure).published > 0 }) {
		for _, b := range r.testbeds {
			rate, err := b.counting(ctx)
			if err != nil {
				return fmt.Errorf("find rates that the generator makes beside %s: %w", b.network.Name(), err)
			}
			if n.CountingMax == 0 || rate < n.CountingMax {
				n.CountingMax = rate
			}
		}
		n.Scale = min(n.Scale, spare*n.CountingMax/highest)
	}
	for _, b := range r.testbeds {
		b.scale = n.Scale
	}
	r.progress.Note("1 Mpps of the published study is %.0f kpps here.", n.Scale*1e3)
	return nil
}

// bound is the median rate that arrives at a sink from a generator on a CPU.
func (b *Testbed) bound(ctx context.Context, cpu int, count func() (*packetgen.Sink, error)) (rate float64, err error) {
	if b.sink, err = count(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.closeSinks()) }()
	b.generator.On(cpu)
	var rates []float64
	for range boundTimes {
		o, err := b.offer(ctx, packetgen.Load{For: boundLength})
		if err != nil {
			return 0, err
		}
		rates = append(rates, o.rate())
	}
	return median(rates), nil
}
