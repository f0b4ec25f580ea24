package datapath

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
	"github.com/beeline-cni/beeline/internal/policy"
)

// Sessions is the table of the connections that policies have allowed, and of those that flows tell of. The datapath writes
// them; this removes what is over. Its methods may be called from several goroutines.
type Sessions struct {
	mu sync.Mutex
	m  *ebpf.Map
	// young are the sessions that are not in m yet, and settle moves them there; nil where nothing is tracked.
	young  *ebpf.Map
	settle *ebpf.Program
	// forget removes all that an address is an end of; nil where nothing is tracked. many is until when it is used at once: see Forget.
	forget *ebpf.Program
	many   atomic.Pointer[time.Time]
	shares sessionShares
	// decisions have the permits, which count for sessions.
	decisions *ebpf.Map

	endsMu sync.Mutex
	heldAt time.Time // the last look at what permits hold

	countsMu sync.Mutex
	counts   []SessionCount
}

// newSessions gives the table its maps, and the programs that the agent runs.
func newSessions(m *bpfMaps, programs map[string]*ebpf.Program) *Sessions {
	return &Sessions{
		m:         m.Conntrack,
		young:     m.CtNew,
		settle:    programs[bpfProgFlushConntrack],
		forget:    programs[bpfProgFlushPod],
		shares:    sessionShares{slots: m.CtSlots, shares: m.CtShares, size: m.CtShareSize},
		decisions: m.FlowCache,
	}
}

// divide gives each pod its share of the table: see sessionShares.
func (s *Sessions) divide() error { return s.shares.divide(s.m) }

// Session is a connection as its pods see it: after the translation of Services, before masquerading.
type Session struct {
	// Source is who opened it. For ICMP echo its port is the identifier, and that of Destination is 0.
	Source, Destination netip.AddrPort
	// Protocol is an IP protocol number.
	Protocol uint8
	State    ConnectionState
	// Opened and Seen, the last packet to the second, are as Monotonic has it.
	Opened, Seen time.Duration
	// Packets and Bytes are those of who opened it, and those of the answers. Bytes include the link-layer header.
	Packets, Bytes [2]uint64
	// Ingress and Egress are the policies that allow it; 0 where the pod is not isolated or is not on this node.
	Ingress, Egress policy.Policy
	// Revision counts the changes of policies; this is the one under which it was judged.
	Revision uint32
	// Told says that flows have told of its end: that it was closed, or is no longer allowed.
	Told bool
}

// Expire removes the sessions that are over at now (see Monotonic), and says how many. It hands each that it finds to seen, and then each
// that it has removed to told, with all that was counted; both may be nil. It reads the table in batches; call it every few seconds.
func (s *Sessions) Expire(now time.Duration, seen, told func(Session)) (removed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := map[bpfTuple]bpfCtEntry{}
	tally := map[SessionCount]int{}
	if err := s.settleYoung(); err != nil {
		return 0, err
	}
	err = readAll(s.m, func(k *bpfTuple, v *bpfCtEntry) {
		tally[SessionCount{Protocol: k.Protocol, State: v.state(k.Protocol)}]++
		if seen != nil {
			seen(sessionOf(*k, *v))
		}
		if v.over(k.Protocol, now) {
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
			told(sessionOf(key, *session))
		}
	}
	return removed, err
}

// removeOver looks at a session again and removes it if it is still over: a packet may have come. It gives what was removed.
func (s *Sessions) removeOver(key bpfTuple, now time.Duration) (*bpfCtEntry, error) {
	var session bpfCtEntry
	err := s.m.Lookup(key, &session)
	if err == nil && !session.over(key.Protocol, now) {
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

// SessionCount counts sessions that are alike.
type SessionCount struct {
	// Protocol is an IP protocol number.
	Protocol uint8
	State    ConnectionState
	Sessions int
}

// Counts gives the sessions that the last Expire found, also those that it removed. It reads no table.
func (s *Sessions) Counts() []SessionCount {
	s.countsMu.Lock()
	defer s.countsMu.Unlock()
	return slices.Clone(s.counts)
}

func (s *Sessions) keepCounts(tally map[SessionCount]int) {
	var all []SessionCount
	for c, n := range tally {
		c.Sessions = n
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b SessionCount) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.State, b.State))
	})
	s.countsMu.Lock()
	s.counts = all
	s.countsMu.Unlock()
}

func (v *bpfCtEntry) flag(f bpfCtFlag) bool { return bpfCtFlag(v.Flags)&f != 0 }

// told tells whether flows have told of the end: a session that is no longer allowed was revoked.
func (v *bpfCtEntry) told() bool {
	return v.flag(bpfCtFlagCT_REPORTED_END) || v.flag(bpfCtFlagCT_REVOKED)
}

// over tells whether a session has been quiet for as long as its state lasts. One of SCTP shows no end (policy_context_clear_flags) and is not
// kept as one of TCP: unless its ends do without, heartbeats come in half a minute or so (RFC 9260, 8.3).
func (v *bpfCtEntry) over(protocol uint8, now time.Duration) bool {
	if protocol == uint8(cluster.SCTP) {
		protocol = uint8(cluster.UDP)
	}
	return now-time.Duration(v.Seen) >= lasting(protocol, v.state(protocol))
}

func (v *bpfCtEntry) state(protocol uint8) ConnectionState {
	if protocol == uint8(cluster.TCP) {
		fin, answer := v.flag(bpfCtFlagCT_FIN), v.flag(bpfCtFlagCT_REPLY_FIN)
		switch {
		case v.flag(bpfCtFlagCT_RESET) || fin && answer:
			return ConnectionClosed
		case fin || answer:
			return ConnectionClosing
		}
	}
	if !v.flag(bpfCtFlagCT_REPLIED) {
		return ConnectionOpening
	}
	return ConnectionEstablished
}

func sessionOf(k bpfTuple, v bpfCtEntry) Session {
	s := Session{
		Source:      netip.AddrPortFrom(k.Source.addr(), networkOrder(k.SourcePort)),
		Destination: netip.AddrPortFrom(k.Destination.addr(), networkOrder(k.DestinationPort)),
		Protocol:    k.Protocol, State: v.state(k.Protocol),
		Opened: time.Duration(v.Created), Seen: time.Duration(v.Seen),
		Packets: v.Packets, Bytes: v.Bytes,
		Ingress: policy.Policy(v.Ingress), Egress: policy.Policy(v.Egress),
		Revision: v.Revision, Told: v.told(),
	}
	if v.flag(bpfCtFlagCT_REVERSED) {
		s.Source, s.Destination = s.Destination, s.Source
	}
	return s
}
