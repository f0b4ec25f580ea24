package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/workload"
)

// ServicesPlan is everything that is decided before a run of the Service bench.
type ServicesPlan struct {
	Schedule
	// Baseline says that the nodes themselves take part.
	Baseline bool
	Proxies  []network.Proxy
	// MTU is that of the wire, in bytes.
	MTU int
	// Most is with how many Services changes are timed, and taken in from nothing. Backends is how many each of those has
	// that are only there to be many; KubeProxyBackends the same beside traffic and changes of kube-proxy, to which ten
	// thousand times ten would be minutes of work.
	Most                        int
	Backends, KubeProxyBackends int
	// Changes of each kind are made for each network, as many as begin within ChangesFor.
	Changes    int
	ChangesFor time.Duration
	// Starts from nothing are made, each at most StartLimit long.
	Starts     int
	StartLimit time.Duration
}

// Validate names everything that cannot be.
func (p ServicesPlan) Validate() error {
	var errs []error
	if len(p.Proxies) == 0 {
		errs = append(errs, errors.New("no networks that know Services"))
	}
	if p.IPv6 {
		errs = append(errs, errors.New("the Service bench has IPv4 only"))
	}
	errs = append(errs, validateMTU(p.MTU), p.Schedule.Validate())
	return errors.Join(errs...)
}

// HasBaseline says whether there is what ratios are formed with.
func (p ServicesPlan) HasBaseline() bool { return p.Baseline }

// subjects are the names that take part in each round when every network comes up.
func (p ServicesPlan) subjects() []string {
	var names []string
	if p.Baseline {
		names = append(names, stats.Baseline, stats.Again)
	}
	for _, proxy := range p.Proxies {
		if proxy.Unsupported() == "" {
			names = append(names, proxy.Name())
		}
	}
	return names
}

// levels are the numbers of Services that cells ask for, the smallest first.
func (p ServicesPlan) levels() []int {
	levels := []int{1}
	for _, c := range p.Cells {
		levels = append(levels, servicesOf(c))
	}
	if p.Changes > 0 {
		levels = append(levels, p.Most)
	}
	return sorted(levels)
}

// servicesOf is with how many Services present a cell is measured.
func servicesOf(c Cell) int {
	if through, ok := c.Workload.(workload.Through); ok {
		return through.Services
	}
	return 1
}

// What the parts take, about, on a machine of two cores with nothing else to do.
const (
	bringUpMost    = 12 * time.Second // ten thousand Services, mean of those who are quick and those who are not
	aChange        = 700 * time.Millisecond
	aStart         = 15 * time.Second
	rest           = 3 * time.Second
	mostlyBackends = 10
)

// Estimate is how long the run takes, about, when no round is discarded.
func (p ServicesPlan) Estimate() time.Duration {
	return p.Schedule.Estimate(len(p.subjects())) + p.beside()
}

// beside is the time of everything but rounds.
func (p ServicesPlan) beside() time.Duration {
	proxies := 0
	for _, proxy := range p.Proxies {
		if proxy.Unsupported() == "" {
			proxies++
		}
	}
	var each time.Duration
	for _, level := range p.levels() {
		each += bringUp + takeDown
		if level == p.Most {
			each += bringUpMost
		}
	}
	each += 2*min(p.ChangesFor, time.Duration(p.Changes)*aChange) + time.Duration(p.Starts)*(aStart+rest)
	return each * time.Duration(proxies)
}

// servicesBench is a run of the Service bench under way.
type servicesBench struct {
	*bench
	plan     ServicesPlan
	testbeds map[string]map[int]*serviceTestbed // by network and number of Services
}

// RunServices carries out a plan of the Service bench. The result is never nil: what was measured before an error, or
// before the context ended, is in it, with its summary. Nothing that was brought up is left.
func RunServices(ctx context.Context, p ServicesPlan, progress *Progress) (run *result.Run, err error) {
	run = NewRun(p.Schedule)
	run.Settings.Suite, run.Settings.MTU = "services", p.MTU
	run.Services = &result.Services{}
	b := &servicesBench{bench: &bench{progress: progress, threads: softirqThreads(), run: run}, plan: p, testbeds: map[string]map[int]*serviceTestbed{}}
	defer func() { Finish(run) }()
	if err := p.Validate(); err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.starts(ctx); err != nil {
		return run, err
	}
	if err := b.open(ctx); err != nil {
		return run, err
	}
	b.describe(ctx)
	if err := b.traffic(ctx); err != nil {
		return run, err
	}
	if err := b.changes(ctx); err != nil {
		return run, err
	}
	if Kept(run) == 0 {
		return run, fmt.Errorf("%w: the gate discarded all %d rounds", ErrNothing, len(run.Rounds))
	}
	return run, nil
}

// traffic makes the rounds, with this process out of their way.
func (b *servicesBench) traffic(ctx context.Context) error {
	release, err := stayOn(allowed()[0])
	if err != nil {
		return err
	}
	defer release()
	var subjects []Subject
	for _, name := range b.plan.subjects() {
		if testbeds := b.testbeds[name]; len(testbeds) > 0 {
			subjects = append(subjects, &serviceSubject{name, testbeds})
		}
	}
	noise := &labNoise{cgroups: b.cgroups(), threads: b.threads}
	return b.plan.Make(ctx, subjects, noise, b.run, b.progress)
}

// serviceSubject is a network in the rounds: of several labs, the one with as many Services as the cell asks for.
type serviceSubject struct {
	name     string
	testbeds map[int]*serviceTestbed
}

func (e *serviceSubject) Name() string { return e.name }

func (e *serviceSubject) Sample(ctx context.Context, cell Cell, length time.Duration) result.Sample {
	of := servicesOf(cell)
	if e.name == stats.Baseline { // which has no Services: every number of them is the same to it
		of = 1
	}
	l := e.testbeds[of]
	if l == nil {
		s := newSample(cell)
		s.Error = fmt.Sprintf("did not come up with %d Services", of)
		return s
	}
	return l.sample(ctx, cell, length)
}
