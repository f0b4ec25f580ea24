package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/test/netlab"
)

// figures are the results.
type figures struct {
	ready           time.Duration
	listed          int64 // bytes until then
	atStart, inRest memory
	inChurn         memory
	maps            float64 // MiB of kernel memory
	// churned is the duration of the churn, starts its number of pods, cpu the agent's CPU time meanwhile and sent
	// the bytes that it received.
	churned, cpu time.Duration
	starts       int64
	sent         int64
	idleCPU      float64 // of a CPU
	adds         []time.Duration
	answers      []time.Duration // of the API server
	changes      []timed
}

// timed are the latencies of one kind of change.
type timed struct {
	what    string
	measure func(context.Context) ([]time.Duration, error)
	took    []time.Duration
	err     error
}

// The targets.
const (
	maxMemory = 250 // MiB
	maxCPU    = .1
	maxChange = 200 * time.Millisecond
	maxADD    = 100 * time.Millisecond
)

// measure takes all measurements.
func (a *agent) measure(ctx context.Context) (f *figures, err error) {
	f = &figures{}
	begin := time.Now()
	if err := waitFor(ctx, 5*time.Minute, a.synced); err != nil {
		return nil, fmt.Errorf("wait for the agent: %w\n%s", err, tail(netlab.LogFile(a.o.node)))
	}
	f.ready, f.listed = time.Since(begin), a.server.proxy.received.Load()
	a.o.say("the agent knows everything")
	locals, err := a.addLocals(ctx)
	if err != nil {
		return nil, err
	}
	if f.atStart, err = a.memory(); err != nil {
		return nil, err
	}
	a.o.say("%d local pods have their networks; memory %.0f MiB", len(locals), f.atStart.rss)
	a.profile("heap-start", "heap?gc=1")
	if err := a.measureChurn(ctx, f, locals[0]); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, tail(netlab.LogFile(a.o.node)))
	}
	if f.inChurn, err = a.memory(); err != nil {
		return nil, err
	}
	time.Sleep(5 * time.Second) // let earlier work finish
	before, err := a.cpu()
	if err != nil {
		return nil, err
	}
	a.o.say("nothing happens")
	time.Sleep(a.o.idle)
	after, err := a.cpu()
	f.idleCPU = (after - before).Seconds() / a.o.idle.Seconds()
	if err == nil {
		f.inRest, err = a.memory()
	}
	if err == nil {
		f.maps, err = a.maps()
	}
	return f, err
}

// measureChurn starts and deletes pods, and times changes of each kind meanwhile.
func (a *agent) measureChurn(ctx context.Context, f *figures, local *sandbox) error {
	c := &churn{a: a}
	churning, stop := context.WithTimeout(ctx, a.o.churn)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.run(churning) }()
	a.o.say("pods start and end")
	time.Sleep(lives / 2)
	seconds := fmt.Sprintf("seconds=%.0f", a.o.churn.Seconds()/3-1)
	go a.profile("cpu", "profile?"+seconds)
	go a.profile("allocations", "allocs?"+seconds)

	// First only the pods, for the agent's CPU share; then the other changes too.
	begin, starts, sent := time.Now(), c.starts.Load(), a.server.proxy.received.Load()
	before, err := a.cpu()
	if err != nil {
		return err
	}
	time.Sleep(a.o.churn / 3)
	after, err := a.cpu()
	f.cpu, f.churned, f.starts, f.sent = after-before, time.Since(begin), c.starts.Load()-starts, a.server.proxy.received.Load()-sent
	a.o.say("changes are timed")
	go a.profile("cpu-changes", "profile?seconds=30")
	f.changes = []timed{
		{what: "a pod's labels change until its identity is another", measure: a.timeLabels},
		{what: "a NetworkPolicy comes or goes until its pod has other rules", measure: func(ctx context.Context) ([]time.Duration, error) {
			return a.timePolicies(ctx, local)
		}},
		{what: "a Service comes or goes until it answers or does not", measure: a.timeServices},
		{what: "a node comes or goes until the kernel has or loses its route", measure: a.timeNodes},
	}
	var all sync.WaitGroup
	for i := range f.changes {
		all.Go(func() { f.changes[i].run(ctx) })
	}
	all.Wait()
	err = errors.Join(err, <-ended)
	for _, t := range f.changes {
		err = errors.Join(err, t.err)
	}
	a.profile("heap-churn", "heap?gc=1")
	slices.Sort(c.adds)
	f.adds, f.answers = c.adds, slices.Sorted(slices.Values(a.server.answers))
	return err
}

func (t *timed) run(ctx context.Context) {
	if t.took, t.err = t.measure(ctx); t.err != nil {
		t.err = fmt.Errorf("time how %s: %w", t.what, t.err)
	}
	slices.Sort(t.took)
}

// quantile returns that of sorted times by nearest rank.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[max(0, int(math.Ceil(q*float64(len(all))))-1)].Round(100 * time.Microsecond)
}

// notKept is the verdict of a missed target.
const notKept = "**not kept**"

// missed returns the lines of the published table with missed targets.
func missed(text string) (lines string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, notKept) {
			lines += "\n" + line
		}
	}
	return lines
}

const mib = 1 << 20

// text is the published table.
func (f *figures) text(ctx context.Context, o *options) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	kept := func(is bool) string {
		if is {
			return "kept"
		}
		return notKept
	}
	line("%d nodes, %d pods, %d namespaces, %d Services with %d endpoints, %d NetworkPolicies; %.0f pod starts and ends/s, %.0f of them on the node that is measured. %s", o.nodes, o.pods, o.namespaces, o.services, o.services*o.endpointsEach, o.policies, o.starts, o.adds, describe(ctx))
	line("")
	line("| what | measured | target | |")
	line("|---|---|---|---|")
	line("| memory (RSS), at most while it starts | %.0f MiB | %d MiB | %s |", f.atStart.peak, maxMemory, kept(f.atStart.peak <= maxMemory))
	line("| memory (RSS), at most while pods start and end | %.0f MiB | %d MiB | %s |", f.inChurn.peak, maxMemory, kept(f.inChurn.peak <= maxMemory))
	line("| memory (RSS) at rest | %.0f MiB, %.0f MiB of it anonymous | | |", f.inRest.rss, f.inRest.anonymous)
	line("| the datapath's maps, kernel memory beside it | %.0f MiB | | |", f.maps)
	share := f.cpu.Seconds() / f.churned.Seconds()
	line("| CPU while %d pods start in %.0f s | %.1f %% of a core | %.0f %% | %s |", f.starts, f.churned.Seconds(), 100*share, 100*maxCPU, kept(share <= maxCPU))
	line("| CPU while nothing happens | %.2f %% of a core | | |", 100*f.idleCPU)
	times := func(what string, all []time.Duration, target string) {
		line("| %s | p50 %s, p99 %s, slowest %s (%d) | %s |", what, quantile(all, .5), quantile(all, .99), quantile(all, 1), len(all), target)
	}
	within := func(all []time.Duration, most time.Duration) string {
		return fmt.Sprintf("p99 %s | %s", most, kept(quantile(all, .99) <= most))
	}
	for _, t := range f.changes {
		times(t.what, t.took, within(t.took, maxChange))
	}
	times("before that, until the API server has answered the write", f.answers, "|")
	times("ADD, the whole plugin", f.adds, within(f.adds, maxADD))
	line("| start until everything is synced and applied | %.1f s | | |", f.ready.Seconds())
	line("| sent by the API server to one agent, at its start | %.1f MiB | | |", float64(f.listed)/mib)
	line("| sent by the API server to one agent, for each pod start and end | %.1f KiB | | |", float64(f.sent)/1024/float64(max(1, f.starts)))
	return b.String()
}
