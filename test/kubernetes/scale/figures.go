package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
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
	starts       int
	sent         int64
	idleCPU      float64 // of a CPU
	adds         []time.Duration
	answers      []time.Duration // of the API server
	changes      []timed
}

// timed are the latencies of one kind of change.
type timed struct {
	what string
	took []time.Duration
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
		return nil, fmt.Errorf("wait for the agent: %w\n%s", err, tail(filepath.Join(a.o.dir, "agent.log")))
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
		return nil, fmt.Errorf("%w\n%s", err, tail(filepath.Join(a.o.dir, "agent.log")))
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
	if a.o.profiles != "" {
		seconds := fmt.Sprintf("seconds=%.0f", a.o.churn.Seconds()/3-1)
		go a.profile("cpu", "profile?"+seconds)
		go a.profile("allocations", "allocs?"+seconds)
	}

	// First only the pods, for the agent's CPU share; then the other changes too.
	before, begin, starts, sent := time.Duration(0), time.Now(), c.count(), a.server.proxy.received.Load()
	before, err := a.cpu()
	if err != nil {
		return err
	}
	time.Sleep(a.o.churn / 3)
	after, err := a.cpu()
	f.cpu, f.churned, f.starts, f.sent = after-before, time.Since(begin), c.count()-starts, a.server.proxy.received.Load()-sent
	a.o.say("changes are timed")
	if a.o.profiles != "" {
		go a.profile("cpu-changes", "profile?seconds=30")
	}
	kinds := []struct {
		what string
		time func(context.Context) ([]time.Duration, error)
	}{
		{"a pod's labels change until its identity is another", a.timeLabels},
		{"a NetworkPolicy comes or goes until its pod has other rules", func(ctx context.Context) ([]time.Duration, error) { return a.timePolicies(ctx, local) }},
		{"a Service comes or goes until it answers or does not", a.timeServices},
		{"a node comes until the kernel has its route", a.timeNodes},
	}
	f.changes = make([]timed, len(kinds))
	errs := make([]error, len(kinds)+2)
	var all sync.WaitGroup
	for i, kind := range kinds {
		all.Go(func() {
			took, err := kind.time(ctx)
			slices.Sort(took)
			if err != nil {
				errs[i] = fmt.Errorf("time how %s: %w", kind.what, err)
			}
			f.changes[i] = timed{kind.what, took}
		})
	}
	all.Wait()
	errs[len(kinds)], errs[len(kinds)+1] = err, <-ended
	a.profile("heap-churn", "heap?gc=1")
	slices.Sort(c.adds)
	f.adds, f.answers = c.adds, slices.Sorted(slices.Values(a.server.answers))
	return errors.Join(errs...)
}

func (c *churn) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts
}

// quantile returns that of sorted times by nearest rank.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[max(0, int(math.Ceil(q*float64(len(all))))-1)].Round(100 * time.Microsecond)
}

// share is the CPU share while pods start and end.
func (f *figures) share() float64 { return f.cpu.Seconds() / f.churned.Seconds() }

// missed names the missed targets.
func (f *figures) missed() string {
	var all []string
	miss := func(is bool, what string) {
		if is {
			all = append(all, what)
		}
	}
	peak := max(f.atStart.peak, f.inChurn.peak)
	miss(peak > maxMemory, fmt.Sprintf("memory %.0f MiB, not %d", peak, maxMemory))
	miss(f.share() > maxCPU, fmt.Sprintf("%.1f %% of a CPU, not %.0f %%", 100*f.share(), 100*maxCPU))
	for _, t := range f.changes {
		miss(quantile(t.took, .99) > maxChange, fmt.Sprintf("%s: p99 %s, not %s", t.what, quantile(t.took, .99), maxChange))
	}
	miss(quantile(f.adds, .99) > maxADD, fmt.Sprintf("ADD: p99 %s, not %s", quantile(f.adds, .99), maxADD))
	return strings.Join(all, "; ")
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
		return "**not kept**"
	}
	line("%d nodes, %d pods, %d namespaces, %d Services with %d endpoints, %d NetworkPolicies; %.0f pod starts and ends/s, %.0f of them on the node that is measured. %s", o.nodes, o.pods, o.namespaces, o.services, o.services*o.endpointsEach, o.policies, o.starts, o.adds, describe(ctx))
	line("")
	line("| what | measured | target | |")
	line("|---|---|---|---|")
	line("| memory (RSS), at most while it starts | %.0f MiB | %d MiB | %s |", f.atStart.peak, maxMemory, kept(f.atStart.peak <= maxMemory))
	line("| memory (RSS), at most while pods start and end | %.0f MiB | %d MiB | %s |", f.inChurn.peak, maxMemory, kept(f.inChurn.peak <= maxMemory))
	line("| memory (RSS) at rest | %.0f MiB, %.0f MiB of it anonymous | | |", f.inRest.rss, f.inRest.anonymous)
	line("| the datapath's maps, kernel memory beside it | %.0f MiB | | |", f.maps)
	line("| CPU while %d pods start in %.0f s | %.1f %% of a core | %.0f %% | %s |", f.starts, f.churned.Seconds(), 100*f.share(), 100*maxCPU, kept(f.share() <= maxCPU))
	line("| CPU while nothing happens | %.2f %% of a core | | |", 100*f.idleCPU)
	for _, t := range f.changes {
		line("| %s | p50 %s, p99 %s, slowest %s (%d) | p99 %s | %s |", t.what, quantile(t.took, .5), quantile(t.took, .99), quantile(t.took, 1), len(t.took), maxChange, kept(quantile(t.took, .99) <= maxChange))
	}
	line("| before that, until the API server has answered the write | p50 %s, p99 %s, slowest %s (%d) | | |", quantile(f.answers, .5), quantile(f.answers, .99), quantile(f.answers, 1), len(f.answers))
	line("| ADD, the whole plugin | p50 %s, p99 %s, slowest %s (%d) | p99 %s | %s |", quantile(f.adds, .5), quantile(f.adds, .99), quantile(f.adds, 1), len(f.adds), maxADD, kept(quantile(f.adds, .99) <= maxADD))
	line("| start until everything is synced and applied | %.1f s | | |", f.ready.Seconds())
	line("| sent by the API server to one agent, at its start | %.1f MiB | | |", float64(f.listed)/mib)
	line("| sent by the API server to one agent, for each pod start and end | %.1f KiB | | |", float64(f.sent)/1024/float64(max(1, f.starts)))
	return b.String()
}
