package conntrack

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/flow"
)

// heldInterval is the least time between two reads of the verdict caches: each reads the flow caches of all CPUs.
const heldInterval = 100 * time.Millisecond

// heldCounts are packets that verdict caches have counted and not yet added to conntrack: each CPU adds its counts
// with the next packet. They are by conntrack key; index 0 is the direction of the key's source.
type heldCounts map[bpf.Tuple]*[2]struct{ packets, bytes uint64 }

// held reads the counts in the verdict caches of all CPUs. A count that is added to conntrack meanwhile is seen in
// either, in both or in none.
func (s *Table) held() (heldCounts, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	keys := make([]uint32, s.flowCache.MaxEntries())
	values := make([]bpf.FlowCacheEntry, len(keys)*cpus)
	var cursor ebpf.MapBatchCursor
	if _, err := s.flowCache.BatchLookup(&cursor, keys, values, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read verdict caches: %w", err)
	}
	all := heldCounts{}
	for i := range values {
		all.add(&values[i])
	}
	return all, nil
}

// add counts what a verdict cache holds. As verdict_cache_end of bpf/lib/policy/verdict_cache.h.
func (h heldCounts) add(d *bpf.FlowCacheEntry) {
	p := &d.Verdict
	if p.Protocol == 0 || p.Packets == 0 || p.Uncounted != 0 {
		return
	}
	key, reversed := bpf.ConntrackKey(bpf.Tuple{
		Source: p.Sender, Destination: d.Destination, SourcePort: p.SenderPort, DestinationPort: p.DestinationPort, Protocol: p.Protocol,
	})
	counts := h[key]
	if counts == nil {
		counts = &[2]struct{ packets, bytes uint64 }{}
		h[key] = counts
	}
	direction := 0
	if reversed {
		direction = 1
	}
	counts[direction].packets += p.Packets
	counts[direction].bytes += p.Bytes
}

// addTo adds the held counts of a connection to its entry.
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

// Complete updates the counts of events that report the end of a connection. The datapath reports the end before
// other CPUs have added their counts and before the last acknowledgment. Complete reads what CPUs still hold at most
// ten times a second. An event whose connection is no longer in the table keeps its counts. On an error, events are
// as complete as possible.
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
			if v.Packets == before.Packets { // else a verdict cache may have ended meanwhile and added its counts
				held.addTo(keyOf(&events[i]), v)
			}
		}
		events[i].Packets, events[i].Bytes = v.Packets, v.Bytes
	}
	return err
}

// keyOf is the conntrack key of an event.
func keyOf(e *flow.Event) bpf.Tuple {
	key, _ := bpf.ConntrackKey(bpf.TupleOf(e.Source, e.Destination, e.Protocol))
	return key
}

// endOf returns the entry whose end an event reports. It returns nil if the event reports no end, if the entry is
// gone, or if another connection has the same ends.
func (s *Table) endOf(e *flow.Event) (*bpf.CtEntry, error) {
	if e.Kind != flow.KindClosed && e.Kind != flow.KindRevoked {
		return nil, nil
	}
	key := keyOf(e)
	v, err := s.find(key)
	if v == nil || err != nil {
		return nil, err
	}
	initiator := entryFrom(key, *v).Source
	if initiator != e.Source || !endReported(v) || v.Packets[0] < e.Packets[0] || v.Packets[1] < e.Packets[1] {
		return nil, nil
	}
	return v, nil
}
