package conntrack

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/flow"
)

// heldInterval is how far apart two looks at what permits hold are at least: each reads the decisions of all CPUs.
const heldInterval = 100 * time.Millisecond

// heldCounts are packets that permits have let pass and that are not in their sessions yet: each CPU adds its own when it sees another
// packet. They are by the session's key, with those that the key's source has sent at 0.
type heldCounts map[bpf.Tuple]*[2]struct{ packets, bytes uint64 }

// held reads what permits hold on all CPUs. What they add to their sessions meanwhile is in either, in both or in none.
func (s *Table) held() (heldCounts, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	keys := make([]uint32, s.decisions.MaxEntries())
	values := make([]bpf.FlowCacheEntry, len(keys)*cpus)
	var cursor ebpf.MapBatchCursor
	if _, err := s.decisions.BatchLookup(&cursor, keys, values, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read permits: %w", err)
	}
	all := heldCounts{}
	for i := range values {
		all.add(&values[i])
	}
	return all, nil
}

// add counts what the permit of a decision holds. As verdict_cache_end of bpf/lib/policy/verdict_cache.h.
func (h heldCounts) add(d *bpf.FlowCacheEntry) {
	p := &d.Verdict
	if p.Protocol == 0 || p.Packets == 0 || p.Uncounted != 0 {
		return
	}
	key, turned := bpf.ConntrackKey(bpf.Tuple{
		Source: p.Sender, Destination: d.Destination, SourcePort: p.SenderPort, DestinationPort: p.DestinationPort, Protocol: p.Protocol,
	})
	counts := h[key]
	if counts == nil {
		counts = &[2]struct{ packets, bytes uint64 }{}
		h[key] = counts
	}
	direction := 0
	if turned {
		direction = 1
	}
	counts[direction].packets += p.Packets
	counts[direction].bytes += p.Bytes
}

// addTo adds what is held of a session to its counts.
func (h heldCounts) addTo(key bpf.Tuple, v *bpf.CtEntry) {
	counts := h[key]
	if counts == nil {
		return
	}
	for i, c := range counts {
		if hasFlag(v, bpf.CtFlagCT_REVERSED) {
			i = 1 - i
		}
		v.Packets[i] += c.packets
		v.Bytes[i] += c.bytes
	}
}

// Complete gives events that tell of the ends of sessions all that has been counted by now. When the datapath told of them, what other CPUs had
// let pass was not among it, nor the last acknowledgment. What they still hold is looked for at most ten times a second; a session that is no
// longer in the table keeps what was told. Whatever the error, events are as complete as they could be made.
func (s *Table) Complete(events []flow.Event) error {
	s.endsMu.Lock()
	defer s.endsMu.Unlock()
	ended := map[int]bpf.CtEntry{}
	for i := range events {
		v, err := s.endOf(&events[i])
		if err != nil {
			return err
		}
		if v != nil {
			ended[i] = *v
		}
	}
	if len(ended) == 0 {
		return nil
	}
	var held heldCounts
	var err error
	if now := time.Now(); now.Sub(s.heldAt) >= heldInterval {
		s.heldAt = now
		held, err = s.held()
	}
	for i, before := range ended {
		v := &before
		if held != nil {
			now, e := s.endOf(&events[i])
			err = errors.Join(err, e)
			if now != nil {
				v = now
			}
			if v.Packets == before.Packets { // else a permit may have ended meanwhile, and what was held is counted
				held.addTo(keyOf(&events[i]), v)
			}
		}
		events[i].Packets, events[i].Bytes = v.Packets, v.Bytes
	}
	return err
}

// keyOf gives the key of the session that an event tells of.
func keyOf(e *flow.Event) bpf.Tuple {
	key, _ := bpf.ConntrackKey(bpf.Tuple{
		Source: bpf.AddressOf(e.Source.Addr()), Destination: bpf.AddressOf(e.Destination.Addr()),
		SourcePort: bpf.NetworkOrder(e.Source.Port()), DestinationPort: bpf.NetworkOrder(e.Destination.Port()), Protocol: e.Protocol,
	})
	return key
}

// endOf gives the session whose end an event tells of, or nil: if it does not tell of an end, or the session is not in the table, or
// another one that has the same ends.
func (s *Table) endOf(e *flow.Event) (*bpf.CtEntry, error) {
	if e.Kind != flow.Closed && e.Kind != flow.Revoked {
		return nil, nil
	}
	key := keyOf(e)
	v, err := s.find(key)
	if v == nil || err != nil {
		return nil, err
	}
	opener := entryFrom(key, *v).Source
	if opener != e.Source || !endReported(v) || v.Packets[0] < e.Packets[0] || v.Packets[1] < e.Packets[1] {
		return nil, nil
	}
	return v, nil
}
