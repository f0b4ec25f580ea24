package flow

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/flow"
)

// openConnections are the connections whose start was reported and whose end was not: a full conntrack table evicts
// entries without an event. They are known from events, and from each pass over the table, which also shows which are
// gone. Methods are safe for concurrent use.
type openConnections struct {
	mu       sync.Mutex
	capacity int
	all      map[connectionKey]*openConnection
	// look counts the passes over the table.
	look uint64
	// untracked counts connections beyond capacity.
	untracked atomic.Uint64
}

// connectionKey identifies a connection among those of the same start time.
type connectionKey struct {
	source, destination netip.AddrPort
	protocol            uint8
}

// openConnection is the state of one.
type openConnection struct {
	// last is the event to report at its end.
	last flow.Event
	// look is the last pass that found it, or the next one after its event.
	look  uint64
	since time.Time
}

func newOpenConnections(capacity int) *openConnections {
	return &openConnections{capacity: capacity, all: map[connectionKey]*openConnection{}}
}

// note updates the state from an event, and completes the event. If it is the first event of a connection that
// replaces another one, note returns the end event of the replaced one.
func (o *openConnections) note(e *flow.Event) (replaced *flow.Event) {
	at := connectionKey{e.Source, e.Destination, e.Protocol}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.all[at]; s != nil && e.First && e.Created.After(s.since) {
		replaced = s.end(e.Created)
		delete(o.all, at)
	}
	switch e.Kind {
	case flow.KindNew, flow.KindReplied:
		o.learn(at, *e, o.look+1)
	case flow.KindClosed, flow.KindRevoked:
		if s := o.all[at]; s != nil {
			s.identify(e)
			delete(o.all, at)
		}
	case flow.KindDropped:
	}
	return replaced
}

// identify adds the identities to an event from the table, which has none.
func (s *openConnection) identify(e *flow.Event) {
	if e.SourceIdentity == 0 && e.DestinationIdentity == 0 {
		e.SourceIdentity, e.DestinationIdentity = s.last.SourceIdentity, s.last.DestinationIdentity
	}
}

// end is the end event of an evicted connection, with the last totals.
func (s *openConnection) end(now time.Time) *flow.Event {
	e := s.last
	e.Time, e.Kind, e.Evicted, e.First = now, flow.KindClosed, true, false
	e.Program, e.Device, e.TCPFlags = "", 0, 0
	return &e
}

// begin starts a pass over the table, and seen records an entry of it. An entry whose end was reported is not open.
func (o *openConnections) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look++
}

func (o *openConnections) seen(s conntrack.Entry, booted time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.Reported {
		delete(o.all, connectionKey{s.Source, s.Destination, s.Protocol})
		return
	}
	o.learn(connectionKey{s.Source, s.Destination, s.Protocol}, endEvent(s, booted), o.look)
}

// learn needs the lock. An event that was read late has older totals.
func (o *openConnections) learn(at connectionKey, e flow.Event, look uint64) {
	s := o.all[at]
	if s == nil {
		if len(o.all) >= o.capacity {
			if e.First { // once for each connection
				o.untracked.Add(1)
			}
			return
		}
		s = &openConnection{since: time.Now()}
		o.all[at] = s
	}
	s.identify(&e)
	if e.Packets[0] < s.last.Packets[0] || e.Packets[1] < s.last.Packets[1] {
		e.Packets, e.Bytes = s.last.Packets, s.last.Bytes
	}
	s.last = e
	s.look = max(s.look, look)
}

// gone ends a pass over the whole table. It removes the connections that it did not see and returns their end events.
func (o *openConnections) gone(now time.Time) (all []flow.Event) {
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
func (o *openConnections) losses() flow.Loss {
	return flow.Loss{
		Kind: flow.KindClosed, Reason: "untracked", Events: o.untracked.Load(),
		Meaning: "more than twice --conntrack-max connections started between two passes over the table: the eviction of some is not reported",
	}
}

// endEvent is the end event of a connection, without its time. booted is when the datapath's clock was 0.
func endEvent(s conntrack.Entry, booted time.Time) flow.Event {
	return flow.Event{
		Kind: flow.KindClosed, Created: booted.Add(s.Created), Protocol: s.Protocol, Source: s.Source, Destination: s.Destination,
		Packets: s.Packets, Bytes: s.Bytes, Ingress: s.Ingress, Egress: s.Egress,
	}
}
