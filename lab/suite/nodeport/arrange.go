package nodeport

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// cores are the two CPUs of the suite: everything on one core is on the measured one, and the forwarding node alone
// too.
type cores struct{ measured, other int }

// coresOf chooses from CPUs as package round does: the first one, where most machines handle their
// interrupts and this program waits, is used only where there are just two.
func coresOf(all []int) (c cores, err error) {
	switch len(all) {
	case 0, 1:
		return cores{}, errors.New("the suite nodeport needs two CPUs: the forwarding node has one for itself")
	case 2:
		return cores{measured: all[1], other: all[0]}, nil
	}
	return cores{measured: all[1], other: all[2]}, nil
}

// What the samples to come need of the lab.
const (
	countPackets = true
	carryTCP     = false
)

// arrange prepares the lab for packets to be counted in a placement, or for TCP on one core. After an error it starts
// again the next time.
func (m *member) arrange(p result.Placement, count bool) (err error) {
	if count == (m.sink != nil) && p == m.placement && m.arranged {
		return nil
	}
	m.placement, m.arranged = p, false
	defer func() { m.arranged = err == nil }()
	if err := m.closeSinks(); err != nil {
		return err
	}
	if p == result.ForwarderCore {
		return m.isolate()
	}
	for _, d := range m.devices.all() {
		if err := d.unthread(); err != nil {
			return err
		}
	}
	if !count {
		m.wireSink, err = packetgen.PassOnWire(m.Lab.Client(), m.devices.forwarderPort.name)
		return err
	}
	m.generator.On(m.cores.measured)
	if m.wireSink, err = packetgen.CountOnWire(m.Lab.Client(), m.devices.forwarderPort.name, m.counted(), m.devices.backendPort.name); err != nil {
		return err
	}
	m.sink, err = packetgen.CountInStack(m.backend.Netns, podDevice, m.counted())
	return err
}

// podDevice is the name that all networks give a pod's device.
const podDevice = "eth0"

// isolate puts the forwarding node's work alone on one CPU.
func (m *member) isolate() error {
	if err := m.devices.forwarder.thread(m.cores.measured); err != nil {
		return err
	}
	if err := m.devices.forwarderPort.thread(m.cores.other); err != nil {
		return err
	}
	m.generator.On(m.cores.other)
	var err error
	m.sink, err = packetgen.CountOnWire(m.Lab.Client(), m.devices.forwarderPort.name, m.counted(), "")
	return err
}

// counted is what packets are addressed to when they have been forwarded.
func (m *member) counted() netip.AddrPort {
	return netip.AddrPortFrom(m.backendAddress(), udpPort)
}

func (m *member) closeSinks() error {
	var errs []error
	for _, s := range []**packetgen.Sink{&m.sink, &m.wireSink} {
		if *s != nil {
			errs = append(errs, (*s).Close())
			*s = nil
		}
	}
	return errors.Join(errs...)
}

// outcome is what became of a load.
type outcome struct {
	packetgen.Offered
	arrived uint64
	// busy is the CPU time that the forwarding node's threads used, where it has any.
	busy time.Duration
}

// rate is packets that arrived per second.
func (o outcome) rate() float64 {
	if o.Took <= 0 {
		return 0
	}
	return float64(o.arrived) / o.Took.Seconds()
}

// loss is the share that did not arrive.
func (o outcome) loss() float64 {
	if o.Frames == 0 {
		return 0
	}
	return max(0, 1-float64(o.arrived)/float64(o.Frames))
}

// left is the share of the forwarding node's CPU that was left.
func (o outcome) left() float64 {
	if o.Took <= 0 {
		return 0
	}
	return max(0, 1-o.busy.Seconds()/o.Took.Seconds())
}

// offer makes a load and counts. The generator's last system call ends long after what is on the way has arrived.
func (m *member) offer(ctx context.Context, l packetgen.Load) (o outcome, err error) {
	before, err := m.sink.Arrived()
	if err != nil {
		return o, err
	}
	busy := m.devices.forwarder.cpuTime()
	if o.Offered, err = m.generator.Offer(ctx, l); err != nil {
		return o, err
	}
	o.busy = m.devices.forwarder.cpuTime() - busy
	after, err := m.sink.Arrived()
	o.arrived = after - before
	if err == nil && o.Frames == 0 {
		err = fmt.Errorf("offer frames: none was made in %v", l.For)
	}
	return o, err
}

// warmUp makes every flow known to the forwarding node, beyond what it may take to trust one.
func (m *member) warmUp(ctx context.Context) error {
	const each, rate = 12, 100000
	_, err := m.offer(ctx, packetgen.Load{Rate: rate, For: 10 * time.Second, Count: uint64(each * flows)})
	return err
}

// routes say how packets travelled, for the report.
var routes = map[string]string{
	string(result.ForwarderCore): "live frames: no copy on veth, and no skb before the forwarding node makes one. Its NAPI runs in a thread alone on one CPU; generator and counter share another. " +
		"Counted at XDP at the end of the wire to the backend's node (" + testbed.Uplink + "'s peer), where they end.",
	string(result.OneCore): "live frames as far as the forwarding node, which sends them back to the switch; from there, by XDP past the switch's bridge, to the second node and into the pod. " +
		"All of it, with the generator, in softirqs of one CPU. Counted at tc in the pod, where they end.",
}
