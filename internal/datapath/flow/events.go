// Package flow reads what the datapath reports: events of connections and drops, lost events, and counters of drops by program and reason.
package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Events is what the datapath tells of sessions and of drops. Events wait while no agent reads them, for as long as there is room.
type Events struct {
	events, losses *ebpf.Map
	sample         uint32
	reporters      reporters
}

// NewEvents gives flows their maps and those of the programs that report late; sample is Datapath.FlowsSample.
func NewEvents(m *bpf.Maps, programs map[string]*ebpf.Program, sample uint32) Events {
	return Events{
		events: m.Flows, losses: m.FlowLost, sample: sample,
		reporters: reporters{sessions: programs[bpf.ProgReportFlows], drops: programs[bpf.ProgFlushDrops]},
	}
}

// reporters are the programs that tell of what no packet has told of. One is nil where flows do not tell of such things at all.
type reporters struct {
	// sessions tells of those that are young, and drops of those that were counted because one like them had been told of.
	sessions, drops *ebpf.Program
}

// Samples tells whether flows tell of a session (Datapath.FlowsSample). As flow_sampled of bpf/lib/flow/events.h.
func (f Events) Samples(s conntrack.Entry) bool {
	if f.sample <= 1 {
		return true
	}
	hash := (uint32(s.Created) ^ (uint32(s.Source.Port()) + uint32(s.Destination.Port()))) * 0x9e3779b1
	return (hash^hash>>15)%f.sample == 0
}

// flowLosses names enum flow_loss of bpf/types_policy.h, in its order.
var flowLosses = [bpf.FlowLossFLOW_LOSS_MAX]struct{ why, meaning string }{
	bpf.FlowLossFLOW_LOSS_FULL:    {"full", "the agent did not read as fast as they came"},
	bpf.FlowLossFLOW_LOSS_LIMITED: {"limited", "more drops a second than --flows-rate"},
	bpf.FlowLossFLOW_LOSS_EVICTED: {"evicted", "drops like one that was told, counted to be told of later, when others took their place"},
}

// Losses counts, since the maps are there, the events that were not told, by kind and cause; those that are zero too.
func (f Events) Losses() ([]flow.Loss, error) {
	var all []flow.Loss
	for _, kind := range flow.Kinds {
		for why, words := range flowLosses {
			var perCPU []uint64
			if err := f.losses.Lookup(uint32(kind)*uint32(bpf.FlowLossFLOW_LOSS_MAX)+uint32(why), &perCPU); err != nil {
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
func (f Events) Reader() (*Reader, error) {
	r, err := ringbuf.NewReader(f.events)
	if err != nil {
		return nil, fmt.Errorf("open flows: %w", err)
	}
	return &Reader{ring: r, reporters: f.reporters}, nil
}

// Reader reads events.
type Reader struct {
	ring      *ringbuf.Reader
	record    ringbuf.Record
	reporters reporters
	// toldDrops is when drops were last told of.
	reportedDrops time.Time
}

// Read gives all events that there are for so long, as soon as a quarter of the buffer is full: the datapath wakes nobody for less. Then it has those
// sessions told of that have begun and are neither over nor told of, once a second also those drops that were only counted, and gives all the rest. Events come in the order in which they were told: one
// about the beginning of a session that was told of late has an earlier time.
func (r *Reader) Read(wait time.Duration, each func(flow.Event)) error {
	r.ring.SetDeadline(time.Now().Add(wait))
	var booted time.Time // the moment from which the datapath counts
	for asked := false; ; {
		err := r.ring.ReadInto(&r.record)
		if errors.Is(err, os.ErrDeadlineExceeded) && !asked {
			if err := r.runReporters(); err != nil {
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
		if len(r.record.RawSample) != int(unsafe.Sizeof(bpf.FlowEvent{})) {
			continue // of an earlier version, whose programs are being replaced
		}
		if booted.IsZero() { // once: setting the clock moves it
			now, err := table.Monotonic()
			if err != nil {
				return err
			}
			booted = time.Now().Add(-now)
		}
		// The memory is the library's own, aligned, and has just been measured; decoding it by reflection costs a hundred times as much.
		each(eventOf((*bpf.FlowEvent)(unsafe.Pointer(unsafe.SliceData(r.record.RawSample))), booted))
	}
}

func (r *Reader) runReporters() error {
	if err := table.RunAgentProgram(r.reporters.sessions); err != nil {
		return fmt.Errorf("tell of young sessions: %w", err)
	}
	// It looks at all drops of all CPUs, and they are told of once a second at most.
	if time.Since(r.reportedDrops) < time.Second {
		return nil
	}
	r.reportedDrops = time.Now()
	if err := table.RunAgentProgram(r.reporters.drops); err != nil {
		return fmt.Errorf("tell of drops that were counted: %w", err)
	}
	return nil
}

// Close ends reading. Events that come later wait for the next reader.
func (r *Reader) Close() error { return r.ring.Close() }

// eventOf gives what an entry of the ring buffer tells.
func eventOf(e *bpf.FlowEvent, booted time.Time) flow.Event {
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
	if int(e.Program) < len(bpf.ProgramNames) {
		out.Program = bpf.ProgramNames[e.Program]
	}
	if reason := DropReason(e.Reason); reason != DropReason(bpf.DropReasonDROP_NONE) {
		out.Reason, out.Meaning = reason.String(), reason.Meaning()
	}
	return out
}

// endOf gives an address with a port in network order; without an address there is none.
func endOf(a bpf.Address, port uint16) netip.AddrPort {
	addr := a.Addr()
	if !addr.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, bpf.NetworkOrder(port))
}
