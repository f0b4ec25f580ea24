package flow

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/flow"
)

// openSessions are the connections whose beginning was reported and whose end was not: a full conntrack table evicts entries without an
// event. They are learned from events, and from each look at the table, which also shows which are gone. Methods may be called from
// several goroutines.
type openSessions struct {
	mu       sync.Mutex
	capacity int
	all      map[sessionEnds]*openSession
	// look counts the looks at the table.
	look uint64
	// untracked counts connections beyond capacity.
	untracked atomic.Uint64
}

// sessionEnds are the key of a connection among those of the same time.
type sessionEnds struct {
	source, destination netip.AddrPort
	protocol            uint8
}

// openSession is what is known of one.
type openSession struct {
	// last is the event to report when it is gone.
	last flow.Event
	// look is the last one that found it, or the next one after its event.
	look  uint64
	since time.Time
}

func newOpenSessions(capacity int) *openSessions {
	return &openSessions{capacity: capacity, all: map[sessionEnds]*openSession{}}
}

// note learns from an event, and adds to it what is known of the connection. If the event is the first one of a connection that replaces
// another one, note returns the event of the other one's end.
func (o *openSessions) note(e *flow.Event) (replaced *flow.Event) {
	at := sessionEnds{e.Source, e.Destination, e.Protocol}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.all[at]; s != nil && e.First && e.Opened.After(s.since) {
		replaced = s.end(e.Opened)
		delete(o.all, at)
	}
	switch e.Kind {
	case flow.Opened, flow.Answered:
		o.learn(at, *e, o.look+1)
	case flow.Closed, flow.Revoked:
		if s := o.all[at]; s != nil {
			s.identify(e)
			delete(o.all, at)
		}
	case flow.Dropped:
	}
	return replaced
}

// identify adds the identities to an event of the table, which has none.
func (s *openSession) identify(e *flow.Event) {
	if e.SourceIdentity == 0 && e.DestinationIdentity == 0 {
		e.SourceIdentity, e.DestinationIdentity = s.last.SourceIdentity, s.last.DestinationIdentity
	}
}

// end is the event of the end of one that is gone, with the totals of when it was last seen.
func (s *openSession) end(now time.Time) *flow.Event {
	e := s.last
	e.Time, e.Kind, e.PushedOut, e.First = now, flow.Closed, true, false
	e.Program, e.Device, e.TCPFlags = "", 0, 0
	return &e
}

// begin begins a look at the table, and seen learns from an entry in it. An entry whose end was reported is not open.
func (o *openSessions) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look++
}

func (o *openSessions) seen(s conntrack.Entry, booted time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.Reported {
		delete(o.all, sessionEnds{s.Source, s.Destination, s.Protocol})
		return
	}
	o.learn(sessionEnds{s.Source, s.Destination, s.Protocol}, sessionEvent(s, booted), o.look)
}

// learn needs the lock. An event that was read late has older totals.
func (o *openSessions) learn(at sessionEnds, e flow.Event, look uint64) {
	s := o.all[at]
	if s == nil {
		if len(o.all) >= o.capacity {
			if e.First { // once for each
				o.untracked.Add(1)
			}
			return
		}
		s = &openSession{since: time.Now()}
		o.all[at] = s
	}
	s.identify(&e)
	if e.Packets[0] < s.last.Packets[0] || e.Packets[1] < s.last.Packets[1] {
		e.Packets, e.Bytes = s.last.Packets, s.last.Bytes
	}
	s.last = e
	s.look = max(s.look, look)
}

// gone ends a look that has seen the whole table. It forgets those that were not there and returns the events of their ends.
func (o *openSessions) gone(now time.Time) (all []flow.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at, s := range o.all {
		if s.look >= o.look {
			continue
		}
		delete(o.all, at)
		all = append(all, *s.end(now))
	}
	return all
}

// losses counts connections whose end is not reported if they are evicted.
func (o *openSessions) losses() flow.Loss {
	return flow.Loss{
		Kind: flow.Closed, Why: "untracked", Events: o.untracked.Load(),
		Meaning: "more connections than twice --conntrack-max began between two looks at the table: the end of those that were evicted is not reported",
	}
}

// sessionEvent is the event of the end of a connection, without its time. booted is when the datapath's clock was 0.
func sessionEvent(s conntrack.Entry, booted time.Time) flow.Event {
	return flow.Event{
		Kind: flow.Closed, Opened: booted.Add(s.Created), Protocol: s.Protocol, Source: s.Source, Destination: s.Destination,
		Packets: s.Packets, Bytes: s.Bytes, Ingress: s.Ingress, Egress: s.Egress,
	}
}
