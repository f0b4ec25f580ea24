// Package conntrack maintains the table of connections that policies allow or that flow events report. The datapath
// writes it; this package expires, counts and flushes entries.
package conntrack

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Table is the conntrack table. The datapath adds entries; Table removes expired ones. Its methods are safe for
// concurrent use.
type Table struct {
	mu sync.Mutex
	m  *ebpf.Map
	// recent is `ct_new`, the entries that are not in m yet; flush moves them there and is nil if nothing is tracked.
	recent *ebpf.Map
	flush  *ebpf.Program
	// forget removes all entries of an address; nil if nothing is tracked. Until many, Forget uses it at once.
	forget *ebpf.Program
	many   atomic.Pointer[time.Time]
	shares shares
	// flowCache has the verdict caches, which count packets of connections.
	flowCache *ebpf.Map

	endsMu sync.Mutex
	heldAt time.Time // the last read of the verdict caches

	countsMu sync.Mutex
	counts   []Count
}

func New(m *bpf.Maps, programs map[string]*ebpf.Program) *Table {
	return &Table{
		m:         m.Conntrack,
		recent:    m.CtNew,
		flush:     programs[bpf.ProgFlushConntrack],
		forget:    programs[bpf.ProgFlushPod],
		shares:    shares{slots: m.CtSlots, shares: m.CtShares, size: m.CtShareSize},
		flowCache: m.FlowCache,
	}
}

// Divide sets the share of each pod: see shares.
func (s *Table) Divide() error { return s.shares.divide(s.m) }

// Entry is a connection as its pods see it: after Service translation, before masquerading.
type Entry struct {
	// Source is the initiator. For ICMP echo its port is the identifier, and the port of Destination is 0.
	Source, Destination netip.AddrPort
	// Protocol is an IP protocol number.
	Protocol uint8
	State    State
	// Created, and Seen, the time of the last packet to the second, are times of table.Monotonic.
	Created, Seen time.Duration
	// Packets and Bytes are those of the initiator and those of the replies. Bytes include the link-layer header.
	Packets, Bytes [2]uint64
	// Ingress and Egress are the policies that allow it; 0 if the pod is not isolated or is not on this node.
	Ingress, Egress policy.Policy
	// Revision is the policy revision by which it was last evaluated.
	Revision uint32
	// Reported says that a flow event has reported its end: closed, or no longer allowed.
	Reported bool
}

// Expire removes the entries that have expired at now (see table.Monotonic) and returns how many. It calls seen for
// each entry that it finds, and ended for each that it has removed, with complete counts; both may be nil. It reads
// the table in batches; call it every few seconds.
func (s *Table) Expire(now time.Duration, seen, ended func(Entry)) (removed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := map[bpf.Tuple]bpf.CtEntry{}
	tally := map[Count]int{}
	if err := s.Flush(); err != nil {
		return 0, err
	}
	err = table.Read(s.m, func(k *bpf.Tuple, v *bpf.CtEntry) {
		tally[Count{Protocol: k.Protocol, State: stateOf(v, k.Protocol)}]++
		if seen != nil {
			seen(entryFrom(*k, *v))
		}
		if expired(v, k.Protocol, now) {
			old[*k] = *v
		}
	})
	if err != nil {
		return 0, fmt.Errorf("read conntrack: %w", err)
	}
	s.keepCounts(tally)
	if err := s.shares.divide(s.m); err != nil {
		return 0, err
	}
	var held heldCounts
	if ended != nil && len(old) > 0 {
		held, err = s.held()
	}
	for key, before := range old {
		entry, e := s.removeExpired(key, now)
		err = errors.Join(err, e)
		if entry == nil {
			continue
		}
		removed++
		if entry.Packets == before.Packets {
			held.addTo(key, entry)
		}
		if ended != nil {
			ended(entryFrom(key, *entry))
		}
	}
	return removed, err
}

// removeExpired reads an entry again and removes it if it has still expired. It returns what it removed.
func (s *Table) removeExpired(key bpf.Tuple, now time.Duration) (*bpf.CtEntry, error) {
	var entry bpf.CtEntry
	err := s.m.Lookup(key, &entry)
	if err == nil && !expired(&entry, key.Protocol, now) {
		return nil, nil
	}
	if err == nil {
		err = s.m.LookupAndDelete(key, &entry)
	}
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return nil, nil // the datapath has removed or evicted it
	case err != nil:
		return nil, fmt.Errorf("remove conntrack entry: %w", err)
	}
	return &entry, nil
}

// Count is the number of entries of one protocol and state.
type Count struct {
	// Protocol is an IP protocol number.
	Protocol uint8
	State    State
	Entries  int
}

// Counts returns the entries that the last Expire found, including removed ones. It reads no table.
func (s *Table) Counts() []Count {
	s.countsMu.Lock()
	defer s.countsMu.Unlock()
	return slices.Clone(s.counts)
}

func (s *Table) keepCounts(tally map[Count]int) {
	var all []Count
	for c, n := range tally {
		c.Entries = n
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.State, b.State))
	})
	s.countsMu.Lock()
	s.counts = all
	s.countsMu.Unlock()
}

func hasFlag(v *bpf.CtEntry, f bpf.CtFlag) bool { return bpf.CtFlag(v.Flags)&f != 0 }

// endReported reports whether a flow event has reported the end; revocation is reported as one.
func endReported(v *bpf.CtEntry) bool {
	return hasFlag(v, bpf.CtFlagCT_REPORTED_END) || hasFlag(v, bpf.CtFlagCT_REVOKED)
}

// expired reports whether an entry has been idle for the timeout of its state. SCTP shows no end
// (policy_context_clear_flags), so it has the timeouts of UDP: its heartbeats arrive about every half minute, unless
// disabled (RFC 9260, 8.3).
func expired(v *bpf.CtEntry, protocol uint8, now time.Duration) bool {
	if protocol == uint8(cluster.SCTP) {
		protocol = uint8(cluster.UDP)
	}
	return now-time.Duration(v.Seen) >= Timeout(protocol, stateOf(v, protocol))
}

func stateOf(v *bpf.CtEntry, protocol uint8) State {
	if protocol == uint8(cluster.TCP) {
		fin, reply := hasFlag(v, bpf.CtFlagCT_FIN), hasFlag(v, bpf.CtFlagCT_REPLY_FIN)
		switch {
		case hasFlag(v, bpf.CtFlagCT_RESET) || fin && reply:
			return StateClosed
		case fin || reply:
			return StateClosing
		}
	}
	if !hasFlag(v, bpf.CtFlagCT_REPLIED) {
		return StateNew
	}
	return StateEstablished
}

func entryFrom(k bpf.Tuple, v bpf.CtEntry) Entry {
	s := Entry{
		Source:      netip.AddrPortFrom(k.Source.Addr(), bpf.NetworkOrder(k.SourcePort)),
		Destination: netip.AddrPortFrom(k.Destination.Addr(), bpf.NetworkOrder(k.DestinationPort)),
		Protocol:    k.Protocol, State: stateOf(&v, k.Protocol),
		Created: time.Duration(v.Created), Seen: time.Duration(v.Seen),
		Packets: v.Packets, Bytes: v.Bytes,
		Ingress: policy.Policy(v.Ingress), Egress: policy.Policy(v.Egress),
		Revision: v.Revision, Reported: endReported(&v),
	}
	if hasFlag(&v, bpf.CtFlagCT_REVERSED) {
		s.Source, s.Destination = s.Destination, s.Source
	}
	return s
}
