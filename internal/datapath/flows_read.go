package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Flows is what the datapath tells of sessions and of drops. Events wait while no agent reads them, for as long as there is room.
type Flows struct {
	events, losses *ebpf.Map
	sample         uint32
	tell           tellers
}

// newFlows gives flows their maps and those of the programs that report late; sample is Config.FlowsSample.
func newFlows(m *bpfMaps, programs map[string]*ebpf.Program, sample uint32) Flows {
	return Flows{
		events: m.Flows, losses: m.FlowLost, sample: sample,
		tell: tellers{sessions: programs[bpfProgReportFlows], drops: programs[bpfProgFlushDrops]},
	}
}

// tellers are the programs that tell of what no packet has told of. One is nil where flows do not tell of such things at all.
type tellers struct {
	// sessions tells of those that are young, and drops of those that were counted because one like them had been told of.
	sessions, drops *ebpf.Program
}

// Samples tells whether flows tell of a session (Config.FlowsSample). As flow_sampled of bpf/lib/flow/events.h.
func (f Flows) Samples(s Session) bool {
	if f.sample <= 1 {
		return true
	}
	hash := (uint32(s.Opened) ^ (uint32(s.Source.Port()) + uint32(s.Destination.Port()))) * 0x9e3779b1
	return (hash^hash>>15)%f.sample == 0
}

// flowLosses names enum flow_loss of bpf/types_policy.h, in its order.
var flowLosses = [bpfFlowLossFLOW_LOSS_MAX]struct{ why, meaning string }{
	bpfFlowLossFLOW_LOSS_FULL:    {"full", "the agent did not read as fast as they came"},
	bpfFlowLossFLOW_LOSS_LIMITED: {"limited", "more drops a second than --flows-rate"},
	bpfFlowLossFLOW_LOSS_EVICTED: {"evicted", "drops like one that was told, counted to be told of later, when others took their place"},
}

// Losses counts, since the maps are there, the events that were not told, by kind and cause; those that are zero too.
func (f Flows) Losses() ([]flow.Loss, error) {
	var all []flow.Loss
	for _, kind := range flow.Kinds {
		for why, words := range flowLosses {
			var perCPU []uint64
			if err := f.losses.Lookup(uint32(kind)*uint32(bpfFlowLossFLOW_LOSS_MAX)+uint32(why), &perCPU); err != nil {
				return nil, fmt.Errorf("read losses of flows: %w", err)
			}
			loss := flow.Loss{Kind: kind, Why: words.why, Meaning: words.meaning}
			for _, n := range perCPU {
				loss.Events += n
			}
			all = append(all, loss)
		}
	}
	return all, nil
}

// Reader opens the events for reading. There must be one reader at a time, and one goroutine that reads; the caller closes it.
func (f Flows) Reader() (*FlowReader, error) {
	r, err := ringbuf.NewReader(f.events)
	if err != nil {
		return nil, fmt.Errorf("open flows: %w", err)
	}
	return &FlowReader{ring: r, tell: f.tell}, nil
}

// FlowReader reads events.
type FlowReader struct {
	ring   *ringbuf.Reader
	record ringbuf.Record
	tell   tellers
	// toldDrops is when drops were last told of.
	toldDrops time.Time
}

// Read gives all events that there are for so long, as soon as a quarter of the buffer is full: the datapath wakes nobody for less. Then it has those
// sessions told of that have begun and are neither over nor told of, once a second also those drops that were only counted, and gives all the rest. Events come in the order in which they were told: one
// about the beginning of a session that was told of late has an earlier time.
func (r *FlowReader) Read(wait time.Duration, each func(flow.Event)) error {
	r.ring.SetDeadline(time.Now().Add(wait))
	var booted time.Time // the moment from which the datapath counts
	for asked := false; ; {
		err := r.ring.ReadInto(&r.record)
		if errors.Is(err, os.ErrDeadlineExceeded) && !asked {
			if err := r.runTellers(); err != nil {
				return err
			}
			asked = true
			r.ring.SetDeadline(time.Now())
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read flows: %w", err)
		}
		if len(r.record.RawSample) != int(unsafe.Sizeof(bpfFlowEvent{})) {
			continue // of an earlier version, whose programs are being replaced
		}
		if booted.IsZero() { // once: setting the clock moves it
			now, err := Monotonic()
			if err != nil {
				return err
			}
			booted = time.Now().Add(-now)
		}
		// The memory is the library's own, aligned, and has just been measured; decoding it by reflection costs a hundred times as much.
		each((*bpfFlowEvent)(unsafe.Pointer(unsafe.SliceData(r.record.RawSample))).event(booted))
	}
}

func (r *FlowReader) runTellers() error {
	if err := runAgentProgram(r.tell.sessions); err != nil {
		return fmt.Errorf("tell of young sessions: %w", err)
	}
	// It looks at all drops of all CPUs, and they are told of once a second at most.
	if time.Since(r.toldDrops) < time.Second {
		return nil
	}
	r.toldDrops = time.Now()
	if err := runAgentProgram(r.tell.drops); err != nil {
		return fmt.Errorf("tell of drops that were counted: %w", err)
	}
	return nil
}

// Close ends reading. Events that come later wait for the next reader.
func (r *FlowReader) Close() error { return r.ring.Close() }

// event gives what an entry of the ring buffer tells.
func (e *bpfFlowEvent) event(booted time.Time) flow.Event {
	out := flow.Event{
		Time:                booted.Add(time.Duration(e.Time)),
		Kind:                flow.Kind(e.Kind),
		Protocol:            e.Tuple.Protocol,
		TCPFlags:            e.TcpFlags,
		Source:              endOf(e.Tuple.Source, e.Tuple.SourcePort),
		Destination:         endOf(e.Tuple.Destination, e.Tuple.DestinationPort),
		SourceIdentity:      policy.Identity(e.Source),
		DestinationIdentity: policy.Identity(e.Destination),
		Packets:             e.Packets,
		Bytes:               e.Bytes,
		Ingress:             policy.Policy(e.Ingress),
		Egress:              policy.Policy(e.Egress),
		Device:              int(e.Ifindex),
		First:               e.First != 0,
	}
	if e.Created != 0 {
		out.Opened = booted.Add(time.Duration(e.Created))
	}
	if int(e.Program) < len(programNames) {
		out.Program = programNames[e.Program]
	}
	if reason := DropReason(e.Reason); reason != DropReason(bpfDropReasonDROP_NONE) {
		out.Reason, out.Meaning = reason.String(), reason.Meaning()
	}
	return out
}

// endOf gives an address with a port in network order; without an address there is none.
func endOf(a bpfAddress, port uint16) netip.AddrPort {
	addr := a.addr()
	if !addr.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, networkOrder(port))
}
