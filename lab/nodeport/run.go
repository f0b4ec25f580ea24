package nodeport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/machine"
	"github.com/beeline-cni/beeline/lab/measure"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Plan is everything that is decided before a run.
type Plan struct {
	measure.Schedule
	Networks []network.Network
	// MTU is that of the wire, in bytes; Flows is how many flows packets belong to.
	MTU   int
	Flows int

	cores cores
}

// Choice narrows a plan down; zero fields leave it as it is.
type Choice struct {
	Networks, Figures []string
	// Builds take part beside the build that runs.
	Builds     []network.Build
	Placements []result.Placement
	Rounds     int
	Length     time.Duration
	Flows      int
	// Full has applications too, and more rounds. IPv6 is measured instead of IPv4.
	Full, IPv6 bool
}

// What a plan has unless chosen otherwise.
const (
	defaultFlows = 1000
	defaultMTU   = 1500
	mostFlows    = 100000
)

// NewPlan is the plan of a few minutes, or what it is narrowed down to.
func NewPlan(c Choice) (p Plan, err error) {
	schedule := measure.QuickSchedule
	if c.Full {
		schedule = measure.FullSchedule
	}
	p = Plan{
		Schedule: schedule(measure.Choice{Rounds: c.Rounds, Length: c.Length, IPv6: c.IPv6}),
		MTU:      defaultMTU, Flows: defaultFlows,
	}
	p.Mode = "nodeport"
	if c.Flows > 0 {
		p.Flows = c.Flows
	}
	if p.Flows > mostFlows {
		return p, fmt.Errorf("flows %d: want up to %d", p.Flows, mostFlows)
	}
	var unknown []string
	if p.Networks, unknown = named(c.Networks); len(unknown) > 0 {
		return p, fmt.Errorf("no network %q in the NodePort bench; there are: %s", unknown[0], strings.Join(Names(), ", "))
	}
	p.Networks = network.WithBuilds(p.Networks, c.Builds)
	for _, name := range c.Figures {
		if !slices.Contains(Figures(), name) {
			return p, fmt.Errorf("no figure %q in the NodePort bench; there are: %s", name, strings.Join(Figures(), ", "))
		}
	}
	for _, cell := range cells() {
		if cell.Workload.(figure).asked(c) && (len(c.Placements) == 0 || slices.Contains(c.Placements, cell.Placement)) {
			if missing := cell.Workload.Missing(); missing != "" {
				return p, fmt.Errorf("figure %s: %s", cell.Workload.Info().Name, missing)
			}
			p.Cells = append(p.Cells, cell)
		}
	}
	p.cores, err = coresOf(measure.CPUs())
	return p, err
}

// What the parts of a run take, about.
const (
	bringUp  = 3 * time.Second
	takeDown = 400 * time.Millisecond
)

// Estimate is how long the run takes, about, when no round is discarded.
func (p Plan) Estimate() time.Duration {
	subjects := len(p.Networks)
	if p.HasBaseline() {
		subjects++
	}
	return time.Duration(len(p.Networks))*(bringUp+takeDown) + p.Schedule.Estimate(subjects) + 2*time.Second
}

// HasBaseline says whether there is what ratios are formed with.
func (p Plan) HasBaseline() bool {
	return slices.ContainsFunc(p.Networks, func(c network.Network) bool { return c.Name() == stats.Baseline })
}

// Run carries out a plan. The result is never nil: what was measured before an error, or before the context ended, is in
// it, with its summary. Nothing that was brought up is left.
func Run(ctx context.Context, p Plan, progress *measure.Progress) (run *result.Run, err error) {
	run = measure.NewRun(p.Schedule)
	run.Settings.MTU = p.MTU
	defer func() { measure.Finish(run) }()
	if err := p.Validate(); err != nil {
		return run, err
	}
	r := &runner{plan: p, progress: progress, run: run}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.bringUp(ctx); err != nil {
		return run, err
	}
	r.describe(ctx)
	if err := r.scale(ctx); err != nil {
		return run, err
	}
	if err := r.rounds(ctx); err != nil {
		return run, err
	}
	if measure.Kept(run) == 0 {
		return run, fmt.Errorf("%w: the gate discarded all %d rounds", measure.ErrNothing, len(run.Rounds))
	}
	return run, nil
}

// runner is a run under way.
type runner struct {
	plan     Plan
	progress *measure.Progress
	run      *result.Run
	testbeds []*Testbed
}

// bringUp measures the bounds, then brings up every network that can be; one that cannot is listed with the reason.
func (r *runner) bringUp(ctx context.Context) error {
	r.progress.Step("what the generator brings through a bare veth pair")
	bound, err := bounds(ctx, r.plan)
	if err != nil {
		return fmt.Errorf("%w: %w", measure.ErrNothing, err)
	}
	r.run.NodePort = &bound
	r.progress.Note("Bare veth pair: %.2f Mpps with a CPU for each end, %.2f Mpps on one.", bound.OfferedMax/1e6, bound.OneCoreMax/1e6)
	for _, c := range r.plan.Networks {
		record := result.Network{Name: c.Name(), Description: c.Description(), Unsupported: c.Unsupported()}
		if record.Unsupported == "" {
			r.progress.Step("bringing up %s", c.Name())
			b, err := openTestbed(ctx, c, r.plan)
			if err == nil { // and so to be closed, whatever follows
				r.testbeds = append(r.testbeds, b)
			}
			switch {
			case ctx.Err() != nil:
				return errors.Join(ctx.Err(), err)
			case err != nil:
				r.progress.Note("%s does not come up: %v", c.Name(), err)
				record.Unsupported = "does not come up: " + err.Error()
			default:
				record = b.record(ctx)
			}
		} else {
			r.progress.Note("%s: %s", c.Name(), record.Unsupported)
		}
		r.run.Networks = append(r.run.Networks, record)
		r.progress.Advance(bringUp)
	}
	if len(r.testbeds) == 0 {
		return fmt.Errorf("%w: no network came up", measure.ErrNothing)
	}
	return nil
}

// describe records the machine.
func (r *runner) describe(ctx context.Context) {
	e := machine.Describe(ctx)
	e.CPUs = len(measure.CPUs())
	e.CongestionControl = r.testbeds[0].lab.CongestionControl
	r.run.Environment = e
}

// rounds makes them, with this process out of the way of what is measured.
func (r *runner) rounds(ctx context.Context) error {
	release, err := measure.StayOn(r.plan.cores.other)
	if err != nil {
		return err
	}
	defer release()
	var subjects []measure.Subject
	var cgroups []string
	for _, b := range r.testbeds {
		subjects = append(subjects, &subject{b})
		cgroups = append(cgroups, b.cgroups()...)
	}
	return r.plan.Make(ctx, subjects, measure.WatchLabs(cgroups, r.cpuTime), r.run, r.progress)
}

// cpuTime is what the NAPI threads of all labs have used: they are the bench's own.
func (r *runner) cpuTime() (sum time.Duration) {
	for _, b := range r.testbeds {
		sum += b.cpuTime()
	}
	return sum
}

func (r *runner) close() error {
	var errs []error
	for _, b := range r.testbeds {
		r.progress.Status("taking down %s", b.network.Name())
		errs = append(errs, b.close())
		r.progress.Advance(takeDown)
	}
	r.progress.Clear()
	return errors.Join(errs...)
}

// subject is a testbed in the rounds.
type subject struct{ testbed *Testbed }

// Name is the network's.
func (e *subject) Name() string { return e.testbed.network.Name() }

// Sample makes one sample of a figure. What goes wrong is in its Error.
func (e *subject) Sample(ctx context.Context, cell measure.Cell, length time.Duration) result.Sample {
	s := result.Sample{
		Workload: cell.Workload.Info().Name, Path: cell.Path, Placement: cell.Placement, Procs: cell.Procs, Started: time.Now(),
	}
	if err := e.testbed.measure(ctx, cell, length, &s); err != nil {
		s.Error, s.Values, s.Latency = err.Error(), nil, nil
	}
	return s
}

func (b *Testbed) measure(ctx context.Context, cell measure.Cell, length time.Duration, s *result.Sample) error {
	f, ok := cell.Workload.(figure)
	if !ok {
		return fmt.Errorf("%s is no figure of the NodePort bench", cell.Workload.Info().Name)
	}
	if err := b.arrange(cell.Placement, f.packets); err != nil {
		return err
	}
	if f.packets {
		if err := b.warmUp(ctx); err != nil {
			return err
		}
	} else if err := f.tool.Serve(ctx, b.servers, 1); err != nil {
		return err
	}
	out, err := f.sample(ctx, b, f, length)
	s.Values, s.Latency, s.Command = out.Values, out.Latency, out.Command
	if s.Seconds = out.Seconds; s.Seconds == 0 {
		s.Seconds = length.Seconds()
	}
	return err
}
