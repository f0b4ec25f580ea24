// Package flow reads the events of connections and drops that the datapath reports, names them, and keeps the last
// ones for queries.
package flow

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

const (
	// readInterval is how long events wait in the datapath, unless they fill a quarter of its buffer before.
	readInterval = 100 * time.Millisecond
	// readRetry is how long the agent waits after a failure.
	readRetry = 10 * time.Second
)

// Locals gives the pods and addresses of this node; ok is false if they cannot be read at once.
type Locals func() (pods []flow.Local, addresses []netip.Addr, ok bool)

// Flows keeps the events of connections and drops.
type Flows struct {
	config   Config
	log      *slog.Logger
	datapath *datapath.Datapath
	locals   Locals
	names    *flow.Names
	buffer   *flow.Log
	open     *openConnections
	// events counts events by kind, and sessions the first ones of each connection.
	events   [len(kinds)]atomic.Uint64
	sessions atomic.Uint64
	// lost gives the events that the datapath did not report.
	lost func() ([]flow.Loss, error)
	// unreadable counts failures to read events or the totals of connections that have ended.
	unreadable atomic.Uint64
}

// kinds has an element for each kind.
var kinds = [...]flow.Kind{flow.KindNew, flow.KindReplied, flow.KindClosed, flow.KindDropped, flow.KindRevoked}

// New makes the Flows of a node with a conntrack capacity of conntrackMax.
func New(config Config, node string, conntrackMax int, dp *datapath.Datapath, lost func() ([]flow.Loss, error), locals Locals, log *slog.Logger) *Flows {
	return &Flows{
		config: config, log: log, datapath: dp, locals: locals, lost: lost,
		names: flow.NewNames(node), buffer: flow.NewLog(config.FlowsBuffer), open: newOpenConnections(2 * conntrackMax),
	}
}

// Update hands over a snapshot, for names. It does not block.
func (f *Flows) Update(s *cluster.Snapshot) { f.names.Deliver(s) }

// UpdatePolicies sets the names of policies. The caller must not change them afterwards.
func (f *Flows) UpdatePolicies(names map[policy.Policy]cluster.Key) { f.names.SetPolicies(names) }

// record adds names to an event.
func (f *Flows) record(e flow.Event) flow.Record {
	if int(e.Kind) < len(f.events) {
		f.events[e.Kind].Add(1)
	}
	if e.First {
		f.sessions.Add(1)
	}
	return f.names.Record(e)
}

// Run reads events until ctx ends. A failure ends nothing else. With ModeOff there are none.
func (f *Flows) Run(ctx context.Context) error {
	defer f.buffer.Close() // ends the requests that follow it
	for ctx.Err() == nil {
		if err := f.read(ctx); err != nil {
			f.unreadable.Add(1)
			f.log.Error("read flows", "error", err)
			loop.Sleep(ctx, readRetry)
		}
	}
	return nil
}

// read reads events until ctx ends or reading fails.
func (f *Flows) read(ctx context.Context) error {
	reader, err := f.datapath.Events.Reader()
	if err != nil {
		return err
	}
	defer reader.Close()
	const together = 256
	batch := make([]flow.Event, 0, together)
	flush := func() {
		if err := f.datapath.Conntrack.Complete(batch); err != nil {
			f.unreadable.Add(1)
			f.log.Debug("connections keep the totals of their events", "error", err)
		}
		f.add(batch)
		batch = batch[:0]
	}
	for ctx.Err() == nil {
		fresh := true
		err := reader.Read(readInterval, func(e flow.Event) {
			if fresh {
				f.nameLocals()
				fresh = false
			}
			if batch = append(batch, e); len(batch) == together {
				flush()
			}
		})
		flush()
		if err != nil {
			return err
		}
	}
	return nil
}

// nameLocals updates the pods and addresses of this node, or keeps the recent ones: reading does not wait for a
// reconciliation, because the datapath buffers little more than what comes meanwhile.
func (f *Flows) nameLocals() {
	if locals, addresses, ok := f.locals(); ok {
		f.names.SetLocals(locals)
		f.names.SetAddresses(addresses)
	}
}

// add records events.
func (f *Flows) add(events []flow.Event) {
	if len(events) == 0 {
		return
	}
	records := make([]flow.Record, 0, len(events))
	for _, e := range events {
		if replaced := f.open.note(&e); replaced != nil {
			records = append(records, f.record(*replaced))
		}
		records = append(records, f.record(e))
	}
	f.buffer.Add(records...)
}

// Expire removes expired conntrack entries, and reports connections that timed out or were evicted.
func (f *Flows) Expire(now time.Duration) (removed int, err error) {
	if f.config.Flows.Datapath() < config.FlowsPolicy {
		return f.datapath.Conntrack.Expire(now, nil, nil)
	}
	read, err := table.Monotonic() // now was read before other tables
	if err != nil {
		return 0, err
	}
	open, booted := f.open, time.Now().Add(-read)
	open.begin()
	removed, err = f.datapath.Conntrack.Expire(now, func(s conntrack.Entry) {
		if f.datapath.Events.Samples(s) {
			open.seen(s, booted)
		}
	}, func(s conntrack.Entry) { f.connectionExpired(s, booted) })
	if err == nil { // else the pass may be incomplete
		f.add(open.gone(time.Now()))
	}
	return removed, err
}

// connectionExpired reports a connection that timed out, unless the datapath reported its end.
func (f *Flows) connectionExpired(s conntrack.Entry, booted time.Time) {
	if s.Reported || !f.datapath.Events.Samples(s) {
		return
	}
	e := endEvent(s, booted)
	e.Time = time.Now()
	f.add([]flow.Event{e})
}
