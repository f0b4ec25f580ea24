package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// The clock of flows.
const (
	// flowsInterval is how long events wait in the datapath, unless they fill a quarter of the buffer before.
	flowsInterval = 100 * time.Millisecond
	// flowsRetry is how long the agent waits when they cannot be read.
	flowsRetry = 10 * time.Second
)

// flows keeps what the datapath tells of sessions and drops.
type flows struct {
	config FlowConfig
	names  *flow.Names
	log    *flow.Log
	open   *openSessions
	// events counts them by kind, and sessions those that are the first about one.
	events   [len(kindsOfFlows)]atomic.Uint64
	sessions atomic.Uint64
	// lost counts the events that the datapath did not tell.
	lost func() ([]flow.Loss, error)
	// unreadable counts the attempts to read events, or the totals of connections that have ended, that went wrong.
	unreadable atomic.Uint64
}

// kindsOfFlows has an element for each kind.
var kindsOfFlows = [...]flow.Kind{flow.Opened, flow.Answered, flow.Closed, flow.Dropped, flow.Revoked}

func newFlows(config Config, lost func() ([]flow.Loss, error)) *flows {
	return &flows{
		lost: lost, config: config.FlowConfig, names: flow.NewNames(config.NodeName), log: flow.NewLog(config.FlowsKept),
		open: newOpenSessions(2 * config.PolicySizes.Sessions),
	}
}

// deliver hands over a snapshot, for names. It returns at once.
func (f *flows) deliver(s *cluster.Snapshot) { f.names.Deliver(s) }

// setPolicies hands over the names of policies, which must not be changed any more.
func (f *flows) setPolicies(names map[policy.Policy]cluster.Key) { f.names.SetPolicies(names) }

// record gives an event its names.
func (f *flows) record(e flow.Event) flow.Record {
	if int(e.Kind) < len(f.events) {
		f.events[e.Kind].Add(1)
	}
	if e.First {
		f.sessions.Add(1)
	}
	return f.names.Record(e)
}

// runFlows reads what the datapath tells until ctx ends. What goes wrong with it is no reason to end anything else.
func (a *Agent) runFlows(ctx context.Context) error {
	defer a.flows.log.Close() // and with it the requests of those who follow
	for a.config.Flows != FlowsOff && ctx.Err() == nil {
		if err := a.readFlows(ctx); err != nil {
			a.flows.unreadable.Add(1)
			a.log.Error("flows are not read for now", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(flowsRetry):
			}
		}
	}
	<-ctx.Done()
	return nil
}

// readFlows reads until ctx ends or something goes wrong.
func (a *Agent) readFlows(ctx context.Context) error {
	reader, err := a.datapath.Flows.Reader()
	if err != nil {
		return err
	}
	defer reader.Close()
	const together = 256
	batch := make([]flow.Event, 0, together)
	hand := func() {
		if err := a.datapath.Sessions.Complete(batch); err != nil {
			a.flows.unreadable.Add(1)
			a.log.Debug("totals of connections are those that the datapath told", "error", err)
		}
		a.flows.add(batch)
		batch = batch[:0]
	}
	for ctx.Err() == nil {
		fresh := true
		err := reader.Read(flowsInterval, func(e flow.Event) {
			if fresh {
				a.nameLocals()
				fresh = false
			}
			if batch = append(batch, e); len(batch) == together {
				hand()
			}
		})
		hand()
		if err != nil {
			return err
		}
	}
	return nil
}

// nameLocals hands over the pods and addresses of this node as they are now, or leaves them as they were a moment ago: reading must not
// wait for a reconciliation, since the datapath has room for little more than what comes meanwhile.
func (a *Agent) nameLocals() {
	if !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	locals := make([]flow.Local, 0, len(a.endpoints))
	for _, e := range a.endpoints {
		locals = append(locals, flow.Local{Pod: policyPodOf(e).Pod, Addresses: e.Addresses, Device: e.HostIfIndex})
	}
	a.flows.names.SetLocals(locals)
	a.flows.names.SetAddresses(a.current.services.HostPortAddresses)
}

// add tells of events.
func (f *flows) add(events []flow.Event) {
	if len(events) == 0 {
		return
	}
	records := make([]flow.Record, 0, len(events))
	for _, e := range events {
		if replaced := f.open.told(&e); replaced != nil {
			records = append(records, f.record(*replaced))
		}
		records = append(records, f.record(e))
	}
	f.log.Add(records...)
}

// expireSessions removes the sessions that are over, and tells of those that have timed out or were pushed out.
func (a *Agent) expireSessions(now time.Duration) (removed int, err error) {
	if flowModes[a.config.Flows] < datapath.FlowsPolicy {
		return a.datapath.Sessions.Expire(now, nil, nil)
	}
	read, err := datapath.Monotonic() // now is from before other tables were read
	if err != nil {
		return 0, err
	}
	open, booted := a.flows.open, time.Now().Add(-read)
	open.begin()
	removed, err = a.datapath.Sessions.Expire(now, func(s datapath.Session) {
		if a.datapath.Flows.Samples(s) {
			open.seen(s, booted)
		}
	}, func(s datapath.Session) { a.sessionExpired(s, booted) })
	if err == nil { // else not all may have been seen
		a.flows.add(open.gone(time.Now()))
	}
	return removed, err
}

// sessionExpired tells of a session that has timed out, of which the datapath has not told the end.
func (a *Agent) sessionExpired(s datapath.Session, booted time.Time) {
	if s.Told || !a.datapath.Flows.Samples(s) {
		return
	}
	e := sessionEvent(s, booted)
	e.Time = time.Now()
	a.flows.add([]flow.Event{e})
}
