// Package flow reads what the datapath reports: flow events of connections and drops, counts of lost events, and drop
// counters by program and reason.
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

// Events are the flow events of the datapath. The ring buffer keeps events while no agent reads them, up to its size.
type Events struct {
	events, losses *ebpf.Map
	sample         uint32
	reporters      reporters
}

// NewEvents is given the programs that report late; sample is config.Datapath.FlowsSample.
func NewEvents(m *bpf.Maps, programs map[string]*ebpf.Program, sample uint32) Events {
	return Events{
		events: m.Flows, losses: m.FlowLost, sample: sample,
		reporters: reporters{connections: programs[bpf.ProgReportFlows], drops: programs[bpf.ProgFlushDrops]},
	}
}

// reporters are the programs that report what no packet has reported. One is nil if its events are not enabled.
type reporters struct {
	// connections reports entries of `ct_new`. drops reports drops that were only counted, because a similar one had
	// been reported.
	connections, drops *ebpf.Program
}

// Samples reports whether a connection is in the sample (config.Datapath.FlowsSample). As flow_sampled of
// bpf/lib/flow/events.h.
func (f Events) Samples(s conntrack.Entry) bool {
	if f.sample <= 1 {
		return true
	}
	hash := (uint32(s.Created) ^ (uint32(s.Source.Port()) + uint32(s.Destination.Port()))) * 0x9e3779b1
	return (hash^hash>>15)%f.sample == 0
}

// flowLosses names enum flow_loss of bpf/types_policy.h, in its order.
var flowLosses = [bpf.FlowLossFLOW_LOSS_MAX]struct{ why, meaning string }{
	bpf.FlowLossFLOW_LOSS_FULL:    {"full", "the ring buffer was full: the agent did not read fast enough"},
	bpf.FlowLossFLOW_LOSS_LIMITED: {"limited", "more drops a second than --flows-rate"},
	bpf.FlowLossFLOW_LOSS_EVICTED: {"evicted", "repeated drops whose count was evicted before it was reported"},
}

// Losses counts the lost events since the maps were created, by kind and cause, including zeros.
func (f Events) Losses() ([]flow.Loss, error) {
	var all []flow.Loss
	for _, kind := range flow.Kinds {
		for why, words := range flowLosses {
			var perCPU []uint64
			if err := f.losses.Lookup(uint32(kind)*uint32(bpf.FlowLossFLOW_LOSS_MAX)+uint32(why), &perCPU); err != nil {
				return nil, fmt.Errorf("read lost flow events: %w", err)
			}
			loss := flow.Loss{Kind: kind, Reason: words.why, Meaning: words.meaning}
			for _, n := range perCPU {
				loss.Events += n
			}
			all = append(all, loss)
		}
	}
	return all, nil
}

// Reader opens the events for reading. There must be one reader at a time, used by one goroutine; the caller closes
// it.
func (f Events) Reader() (*Reader, error) {
	r, err := ringbuf.NewReader(f.events)
	if err != nil {
		return nil, fmt.Errorf("open flow events: %w", err)
	}
	return &Reader{ring: r, reporters: f.reporters}, nil
}

// Reader reads events.
type Reader struct {
	ring      *ringbuf.Reader
	record    ringbuf.Record
	reporters reporters
	// reportedDrops is when the drops reporter last ran.
	reportedDrops time.Time
}

// Read passes on all events that arrive within wait. The datapath wakes the reader when the buffer is a quarter full.
// At the end Read has the datapath report the connections that have started and are neither closed nor reported, and
// once a second the counted drops, and passes these on, too. Events come in the order in which they were reported:
// the start of a connection may be reported late, with its earlier time.
func (r *Reader) Read(wait time.Duration, each func(flow.Event)) error {
	r.ring.SetDeadline(time.Now().Add(wait))
	var booted time.Time // the zero of the datapath's clock
	for reported := false; ; {
		err := r.ring.ReadInto(&r.record)
		if errors.Is(err, os.ErrDeadlineExceeded) && !reported {
			if err := r.runReporters(); err != nil {
				return err
			}
			reported = true
			r.ring.SetDeadline(time.Now())
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read flow events: %w", err)
		}
		if len(r.record.RawSample) != int(unsafe.Sizeof(bpf.FlowEvent{})) {
			continue // from an earlier version's program, which is being replaced
		}
		if booted.IsZero() { // once, since setting the clock changes it
			now, err := table.Monotonic()
			if err != nil {
				return err
			}
			booted = time.Now().Add(-now)
		}
		// The library aligns the record, and its length has been checked. Decoding by reflection costs a hundred
		// times as much.
		each(eventOf((*bpf.FlowEvent)(unsafe.Pointer(unsafe.SliceData(r.record.RawSample))), booted))
	}
}

func (r *Reader) runReporters() error {
	if err := table.RunAgentProgram(r.reporters.connections); err != nil {
		return fmt.Errorf("report new connections: %w", err)
	}
	// The program reads the drops of all CPUs.
	if time.Since(r.reportedDrops) < time.Second {
		return nil
	}
	r.reportedDrops = time.Now()
	if err := table.RunAgentProgram(r.reporters.drops); err != nil {
		return fmt.Errorf("report counted drops: %w", err)
	}
	return nil
}

// Close ends reading. Later events wait for the next reader.
func (r *Reader) Close() error { return r.ring.Close() }

// eventOf decodes an event of the ring buffer.
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
		out.Created = booted.Add(time.Duration(e.Created))
	}
	if int(e.Program) < len(bpf.ProgramNames) {
		out.Program = bpf.ProgramNames[e.Program]
	}
	if reason := DropReason(e.Reason); reason != DropReason(bpf.DropReasonDROP_NONE) {
		out.Reason, out.Meaning = reason.String(), reason.Meaning()
	}
	return out
}

// endOf is an address with a port in network order; the zero AddrPort for the zero address.
func endOf(a bpf.Address, port uint16) netip.AddrPort {
	addr := a.Addr()
	if !addr.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, bpf.NetworkOrder(port))
}
