package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/wait"
	"github.com/beeline-cni/beeline/lab/worker"
)

// subject is a network in the rounds, with a route for each path.
type subject struct {
	network Network
	routes  map[result.Path]*route
}

// route is what a network's traffic takes on one path.
type route struct {
	record  result.ClusterRoute
	client  *session
	server  *session
	end     worker.End
	cpu     *int // the only one of both ends
	oneCPUs bool // both ends have the same CPUs
	// unserved says why the server of a workload does not run. Its samples fail with that.
	unserved map[string]error
	// turns count the samples of each workload.
	turns map[string]int
	// doubt is set after a failed sample: the stream to the server's worker may have broken without notice.
	doubt bool
}

// patience is what a call may take beside the traffic.
const patience = time.Minute

func (e *subject) Name() string { return e.network.Name }

// Sample runs one cell. What goes wrong is in the sample's Error.
func (e *subject) Sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	s := round.NewSample(cell)
	w := e.routes[cell.Path]
	out, err := w.sample(ctx, cell, length)
	if err != nil {
		return round.Failed(s, err)
	}
	if round.Fill(&s, out.Outcome); s.Seconds == 0 {
		s.Seconds = out.Window
	}
	if out.NoCPU == "" {
		all := out.ClientCPU
		if !w.oneCPUs {
			all = all.Plus(out.ServerCPU)
		}
		s.CPU = all.CPUTime()
	}
	return s
}

func (w *route) sample(ctx context.Context, cell round.Cell, length time.Duration) (*worker.Sample, error) {
	name := cell.Workload.Info().Name
	if w.record.Error != "" {
		return nil, fmt.Errorf("no route: %s", w.record.Error)
	}
	if err := w.unserved[name]; err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cell.Workload.Seconds(length)+patience)
	defer cancel()
	if w.doubt {
		if _, err := w.server.call(ctx, worker.Request{CPU: true}); err != nil {
			return nil, fmt.Errorf("the server's worker is gone: %w", err)
		}
		w.doubt = false
	}
	w.turns[name]++
	reply, err := w.client.call(ctx, worker.Request{Run: &worker.Run{End: w.end, Workload: name, Procs: cell.Procs, Length: length, Turn: w.turns[name], CPU: w.cpu}})
	if err != nil {
		w.doubt = true
		return nil, err
	}
	return reply.Run, nil
}

// reachWait bounds how long a route may take to work: rules for a new Service take a while to reach the nodes.
const reachWait = 45 * time.Second

// find tries a route until data passes there.
func (w *route) find(ctx context.Context) error {
	deadline := time.Now().Add(reachWait)
	for {
		once, cancel := context.WithTimeout(ctx, patience)
		reply, err := w.client.call(once, worker.Request{Probe: &w.end})
		cancel()
		if err == nil {
			p := reply.Probe
			w.record.MTU, w.record.Segment, w.record.Congestion = p.MTU, p.Segment, p.Congestion
			w.record.Source, w.record.ServerSees = p.Source, p.Seen
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			w.record.Error = err.Error()
			return nil
		}
		if err := wait.For(ctx, pollPeriod); err != nil {
			return err
		}
	}
}
