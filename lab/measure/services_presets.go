package measure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/workload"
)

// serviceLevels are the numbers of Services of the curve.
var serviceLevels = []int{1, 100, 1000, 10000}

// serviceWorkloads are run to the pod's address and to the ClusterIP; the quick plan has the first of them only.
var serviceWorkloads = []string{
	"tcp_stream_128k", "tcp_rr", "tcp_crr",
	"sockperf_tcp", "redis_get", "redis_set", "http_keepalive", "http_close",
}

const quickServiceWorkloads = 3

// QuickServices is the plan of about ten minutes: many Services only where each transaction has a new connection.
func QuickServices(c Choice) (ServicesPlan, error) {
	p := ServicesPlan{
		Schedule: QuickSchedule(c), Changes: 100, ChangesFor: 20 * time.Second, Starts: 1, StartLimit: 90 * time.Second,
	}
	if len(c.Workloads) == 0 {
		c.Workloads = serviceWorkloads[:quickServiceWorkloads]
	}
	if c.Rounds == 0 { // of more cells than the other quick run has
		p.Rounds = 7
	}
	return p.complete(c, func(name string, level int) bool { return level == 1 || name == "tcp_crr" })
}

// FullServices is the plan of everything, applications among one Service only; it takes more than an hour.
func FullServices(c Choice) (ServicesPlan, error) {
	p := ServicesPlan{
		Schedule: FullSchedule(c), Changes: 200, ChangesFor: 2 * time.Minute, Starts: 3, StartLimit: 10 * time.Minute,
	}
	if len(c.Workloads) == 0 {
		c.Workloads = serviceWorkloads
	}
	return p.complete(c, func(name string, level int) bool {
		return level == 1 || strings.HasPrefix(name, "tcp_") || strings.HasPrefix(name, "sockperf_")
	})
}

// complete adds the networks, and the cells of all levels that are wanted of a workload.
func (p ServicesPlan) complete(c Choice, wanted func(name string, level int) bool) (ServicesPlan, error) {
	p.MTU, p.Backends, p.KubeProxyBackends = defaultMTU, mostlyBackends, 1
	levels := sorted(slices.Clone(orDefault(c.Levels, serviceLevels...)))
	p.Most = levels[len(levels)-1]
	if levels[0] < 1 || p.Most > mostServices {
		return p, fmt.Errorf("%d Services: want 1 to %d", levels[0], mostServices)
	}
	if len(c.Paths) > 0 && !slices.Equal(c.Paths, []result.Path{result.CrossNode}) || len(c.Procs) > 0 && !slices.Equal(c.Procs, []int{1}) {
		return p, errors.New("the Service bench has the path cross-node and one process only")
	}
	if len(c.Placements) > 1 {
		return p, errors.New("the Service bench has one placement")
	}
	if err := p.chooseProxies(c.Networks, c.Builds); err != nil {
		return p, err
	}
	placement := orDefault(c.Placements, result.OneCore)[0]
	if placement != result.OneCore && placement != result.Spread {
		return p, fmt.Errorf("no placement %q; there are: %s, %s", placement, result.OneCore, result.Spread)
	}
	if _, _, err := cpus(placement, allowed()); err != nil {
		return p, err
	}
	list, err := workload.Select(c.Workloads)
	if err != nil {
		return p, err
	}
	for _, w := range list {
		if missing := w.Missing(); missing != "" {
			return p, fmt.Errorf("workload %s: %s", w.Info().Name, missing)
		}
		if name := w.Info().Name; !strings.HasPrefix(name, "tcp_") && !slices.Contains(serviceWorkloads, name) { // Services here have no UDP ports
			return p, fmt.Errorf("workload %s is not one of the Service bench; those are: %s", w.Info().Name, strings.Join(serviceWorkloads, ", "))
		}
		cell := Cell{w, result.CrossNode, placement, 1}
		p.Cells = append(p.Cells, cell)
		for _, level := range levels {
			if wanted(w.Info().Name, level) || len(levels) == 1 {
				cell.Workload = workload.Through{Workload: w, Services: level}
				p.Cells = append(p.Cells, cell)
			}
		}
	}
	return p, nil
}

// mostServices is how many fillers have addresses of their own.
const mostServices = 60000

// chooseProxies picks the networks of these names, all for no names, and those of other builds beside them.
func (p *ServicesPlan) chooseProxies(names []string, builds []network.Build) error {
	all := []string{stats.Baseline}
	p.Baseline = len(names) == 0 || slices.Contains(names, stats.Baseline)
	for _, proxy := range network.Proxies() {
		all = append(all, proxy.Name())
		if len(names) == 0 || slices.Contains(names, proxy.Name()) {
			p.Proxies = append(p.Proxies, proxy)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("no network %q in the Service bench; there are: %s", name, strings.Join(all, ", "))
		}
	}
	p.Proxies = network.WithBuilds(p.Proxies, builds)
	return nil
}
