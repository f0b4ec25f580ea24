// Package conntrack keeps the table of the connections that policies have allowed or that flows report. The datapath writes it; this package
// expires, counts and flushes entries.
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

// Table is the table of the connections that policies have allowed, and of those that flows tell of. The datapath writes
// them; this removes what is over. Its methods may be called from several goroutines.
type Table struct {
	mu sync.Mutex
	m  *ebpf.Map
	// young are the sessions that are not in m yet, and settle moves them there; nil where nothing is tracked.
	recent *ebpf.Map
	flush  *ebpf.Program
	// forget removes all that an address is an end of; nil where nothing is tracked. many is until when it is used at once: see Forget.
	forget *ebpf.Program
	many   atomic.Pointer[time.Time]
	shares shares
	// decisions have the permits, which count for sessions.
	decisions *ebpf.Map

	endsMu sync.Mutex
	heldAt time.Time // the last look at what permits hold

	countsMu sync.Mutex
	counts   []Count
}

// New gives the table its maps, and the programs that the agent runs.
func New(m *bpf.Maps, programs map[string]*ebpf.Program) *Table {
	return &Table{
		m:         m.Conntrack,
		recent:    m.CtNew,
		flush:     programs[bpf.ProgFlushConntrack],
		forget:    programs[bpf.ProgFlushPod],
		shares:    shares{slots: m.CtSlots, shares: m.CtShares, size: m.CtShareSize},
		decisions: m.FlowCache,
	}
}

// Divide gives each pod its share of the table: see shares.
func (s *Table) Divide() error { return s.shares.divide(s.m) }

// Entry is a connection as its pods see it: after the translation of Services, before masquerading.
type Entry struct {
	// Source is who opened it. For ICMP echo its port is the identifier, and that of Destination is 0.
	Source, Destination netip.AddrPort
	// Protocol is an IP protocol number.
	Protocol uint8
	State    State
	// Opened and Seen, the last packet to the second, are as Monotonic has it.
	Created, Seen time.Duration
	// Packets and Bytes are those of who opened it, and those of the answers. Bytes include the link-layer header.
	Packets, Bytes [2]uint64
	// Ingress and Egress are the policies that allow it; 0 where the pod is not isolated or is not on this node.
	Ingress, Egress policy.Policy
	// Revision counts the changes of policies; this is the one under which it was judged.
	Revision uint32
	// Told says that flows have told of its end: that it was closed, or is no longer allowed.
	Reported bool
}

// Expire removes the sessions that are over at now (see Monotonic), and says how many. It hands each that it finds to seen, and then each
// that it has removed to told, with all that was counted; both may be nil. It reads the table in batches; call it every few seconds.
func (s *Table) Expire(now time.Duration, seen, told func(Entry)) (removed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := map[bpf.Tuple]bpf.CtEntry{}
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
			over[*k] = *v
		}
	})
	if err != nil {
		return 0, fmt.Errorf("read sessions: %w", err)
	}
	s.keepCounts(tally)
	if err := s.shares.divide(s.m); err != nil {
		return 0, err
	}
	var held heldCounts
	if told != nil && len(over) > 0 {
		held, err = s.held()
	}
	for key, before := range over {
		session, e := s.removeOver(key, now)
		err = errors.Join(err, e)
		if session == nil {
			continue
		}
		removed++
		if session.Packets == before.Packets {
			held.addTo(key, session)
		}
		if told != nil {
			told(entryFrom(key, *session))
		}
	}
	return removed, err
}

// removeOver looks at a session again and removes it if it is still over: a packet may have come. It gives what was removed.
func (s *Table) removeOver(key bpf.Tuple, now time.Duration) (*bpf.CtEntry, error) {
	var session bpf.CtEntry
	err := s.m.Lookup(key, &session)
	if err == nil && !expired(&session, key.Protocol, now) {
		return nil, nil
	}
	if err == nil {
		err = s.m.LookupAndDelete(key, &session)
	}
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return nil, nil // the datapath has removed or pushed it out
	case err != nil:
		return nil, fmt.Errorf("remove session: %w", err)
	}
	return &session, nil
}

// Count counts sessions that are alike.
type Count struct {
	// Protocol is an IP protocol number.
	Protocol uint8
	State    State
	Entries  int
}

// Counts gives the sessions that the last Expire found, also those that it removed. It reads no table.
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

// endReported tells whether flows have told of the end: a session that is no longer allowed was revoked.
func endReported(v *bpf.CtEntry) bool {
	return hasFlag(v, bpf.CtFlagCT_REPORTED_END) || hasFlag(v, bpf.CtFlagCT_REVOKED)
}

// expired tells whether a session has been quiet for as long as its state lasts. One of SCTP shows no end (policy_context_clear_flags) and is not
// kept as one of TCP: unless its ends do without, heartbeats come in half a minute or so (RFC 9260, 8.3).
func expired(v *bpf.CtEntry, protocol uint8, now time.Duration) bool {
	if protocol == uint8(cluster.SCTP) {
		protocol = uint8(cluster.UDP)
	}
	return now-time.Duration(v.Seen) >= Timeout(protocol, stateOf(v, protocol))
}

func stateOf(v *bpf.CtEntry, protocol uint8) State {
	if protocol == uint8(cluster.TCP) {
		fin, answer := hasFlag(v, bpf.CtFlagCT_FIN), hasFlag(v, bpf.CtFlagCT_REPLY_FIN)
		switch {
		case hasFlag(v, bpf.CtFlagCT_RESET) || fin && answer:
			return Closed
		case fin || answer:
			return Closing
		}
	}
	if !hasFlag(v, bpf.CtFlagCT_REPLIED) {
		return Opening
	}
	return Established
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
