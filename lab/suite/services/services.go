// Package services is the suite that compares networks which implement Services: what a ClusterIP costs among few and
// many of them, how long traffic takes to follow a change, and how long all Services take after a start.
package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Suite is a run of the suite.
type Suite struct {
	suite.Base[*member]
	// Most is with how many Services changes and starts are timed. Backends is how many each of those has that only add
	// to the number; KubeProxyBackends the same beside traffic and changes of kube-proxy, which would need minutes for
	// ten thousand times ten.
	Most                        int
	Backends, KubeProxyBackends int
	// Changes of each kind are made for each network, as many as begin within ChangesFor.
	Changes    int
	ChangesFor time.Duration
	// Starts from nothing are made, each at most StartLimit long.
	Starts     int
	StartLimit time.Duration

	progress *round.Progress
}

// Workloads are run to the pod's address and to the ClusterIP. A quick run has the first quickWorkloads of them.
var Workloads = []string{
	"tcp_stream_128k", "tcp_rr", "tcp_crr",
	"sockperf_tcp", "redis_get", "redis_set", "http_keepalive", "http_close",
}

const (
	quickWorkloads = 3
	// mostServices is how many Services can have addresses of their own.
	mostServices = 60000
	// manyBackends is how many backends a Service has where it has many.
	manyBackends = 10
)

// New decides what a run measures. A quick one takes about ten minutes and has many Services only for TCP_CRR, where
// each transaction has a new connection. A full one takes more than an hour; it has applications among one Service
// only.
func New(o round.Options) (*Suite, error) {
	s := &Suite{
		Changes: 100, ChangesFor: 20 * time.Second, Starts: 1, StartLimit: 90 * time.Second,
		Backends: manyBackends, KubeProxyBackends: 1,
	}
	among := func(name string) bool { return name == "tcp_crr" }
	workloads := Workloads[:quickWorkloads]
	if o.Full {
		s.Changes, s.ChangesFor, s.Starts, s.StartLimit = 200, 2*time.Minute, 3, 10*time.Minute
		among = func(name string) bool { return strings.HasPrefix(name, "tcp_") || strings.HasPrefix(name, "sockperf_") }
		workloads = Workloads
	}
	var err error
	if s.Base, err = suite.NewBase[*member](o, network.WithServices()); err != nil {
		return nil, err
	}
	s.Open, s.BringUp, s.Beside = s.open, s.bringUp, s.beside
	if !o.Full && o.Rounds == 0 { // it has more cells than other quick runs
		s.Rounds = 7
	}
	levels := sorted(slices.Clone(round.OrDefault(o.Levels, 1, 100, 1000, 10000)))
	s.Most = levels[len(levels)-1]
	if levels[0] < 1 || s.Most > mostServices {
		return nil, fmt.Errorf("%d Services: want 1 to %d", levels[0], mostServices)
	}
	o.Workloads = round.OrDefault(o.Workloads, workloads...)
	placement, list, err := round.OnePath(o, "services")
	if err != nil {
		return nil, err
	}
	for _, w := range list {
		name := w.Info().Name
		if !strings.HasPrefix(name, "tcp_") && !slices.Contains(Workloads, name) { // Services here have no UDP ports
			return nil, fmt.Errorf("workload %s is not one of the suite services; those are: %s", name, strings.Join(Workloads, ", "))
		}
		cell := round.Cell{Workload: w, Path: result.CrossNode, Placement: placement, Procs: 1}
		s.Cells = append(s.Cells, cell)
		for _, level := range levels {
			if level == 1 || among(name) || len(levels) == 1 {
				cell.Workload = workload.Through{Workload: w, Services: level}
				s.Cells = append(s.Cells, cell)
			}
		}
	}
	return s, nil
}

func sorted(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}

// Prepare builds kube-proxy, where the run has it and it has not been built.
func (s *Suite) Prepare(ctx context.Context, print func(string, ...any)) error {
	return network.Prepare(ctx, s.Networks, print)
}

// proxies are the networks that implement Services: all but the baseline.
func (s *Suite) proxies() (list []network.Proxy) {
	for _, n := range s.Networks {
		if proxy, ok := n.(network.Proxy); ok {
			list = append(list, proxy)
		}
	}
	return list
}

// Validate names everything that is wrong.
func (s *Suite) Validate() error {
	var errs []error
	if len(s.proxies()) == 0 {
		errs = append(errs, errors.New("no networks that implement Services"))
	}
	if s.IPv6 {
		errs = append(errs, errors.New("the suite services has IPv4 only"))
	}
	return errors.Join(append(errs, s.Base.Validate())...)
}

// levels are the numbers of Services that cells need, the smallest first.
func (s *Suite) levels() []int {
	levels := []int{1}
	for _, c := range s.Cells {
		levels = append(levels, servicesOf(c))
	}
	if s.Changes > 0 {
		levels = append(levels, s.Most)
	}
	return sorted(levels)
}

// servicesOf is the number of Services with which a cell is measured.
func servicesOf(c round.Cell) int {
	if through, ok := c.Workload.(workload.Through); ok {
		return through.Services
	}
	return 1
}

// What the parts take, about, on a machine of two cores with nothing else to do.
const (
	bringUpMost = 12 * time.Second // ten thousand Services, mean of the quick networks and the others
	changeTime  = 700 * time.Millisecond
	startTime   = 15 * time.Second
	rest        = 3 * time.Second
)

// bringUp is about how long one network takes to come up with every number of Services.
func (s *Suite) bringUp(n network.Network) time.Duration {
	if _, ok := n.(network.Proxy); !ok {
		return suite.BringUpTime
	}
	return time.Duration(len(s.levels()))*suite.BringUpTime + bringUpMost
}

// beside is about how long starts and changes of one network take.
func (s *Suite) beside(n network.Network) time.Duration {
	if _, ok := n.(network.Proxy); !ok {
		return 0
	}
	return s.changesTake() + time.Duration(s.Starts)*(startTime+rest)
}

func (s *Suite) changesTake() time.Duration {
	return 2 * min(s.ChangesFor, time.Duration(s.Changes)*changeTime)
}

// Up times starts, then brings up the baseline once and every other network once for each number of Services. All stay
// up for all rounds, so that samples with few and with many Services are seconds apart.
func (s *Suite) Up(ctx context.Context, b *round.Bench) (round.Field, error) {
	s.progress = b.Progress
	b.Result.Settings.Suite, b.Result.Services = "services", &result.Services{}
	if err := s.starts(ctx, b); err != nil {
		return round.Field{}, err
	}
	return s.Base.Up(ctx, b)
}

// backendsBeside is how many backends each Service has that only adds to the number.
func (s *Suite) backendsBeside(proxy network.Proxy) int {
	switch proxy.(type) {
	case nil:
		return 0
	case network.KubeProxy:
		return s.KubeProxyBackends
	}
	return s.Backends
}
