package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// The contenders of Services that promises are about.
const (
	atSocket = "beeline-socket"
	atTC     = "beeline-tc"
	atXDP    = "beeline-xdp"
	iptables = "kube-proxy-iptables"
)

// promise is what this project wants to reach, beside what a run has found.
type promise struct {
	what string
	// bound is the least that is wanted, or the most if atMost.
	bound  float64
	atMost bool
	// show renders a value; nil renders a ratio.
	show func(float64) string
	// got is what the run has; ok is false where it has nothing to say.
	got func(*view) (found stats.Interval, ok bool)
	// median says that it is a median over the rounds, which another run would find elsewhere: how far, the interval tells.
	median bool
	// beside says what a figure without an interval is of; nil has nothing to say.
	beside func() string
	// brokeOff says that something went wrong while this was measured: what there is of it may break a promise, not keep one.
	brokeOff bool
	// incomplete says the same of what did not go wrong as a whole, but is not known in part; beside says which.
	incomplete bool
}

// promiseRow is a promise, ready to print. Kept is "kept", "not kept" or "not measured", by the median alone. Decided is "yes" where the whole
// interval is on the same side of the bound, and "no", or "no: too few rounds", where chance may have put the median there; a dash where
// nothing was measured and for figures that are no medians.
type promiseRow struct{ What, Wanted, Got, Interval, Kept, Decided string }

const (
	kept        = "kept"
	notKept     = "not kept"
	notMeasured = "not measured"

	decided   = "yes"
	open      = "no"
	fewRounds = "no: too few rounds"
)

// promises are those that runs of this kind are made to check; none for a run of the network.
func (v *view) promises() []promiseRow {
	var list []promise
	switch {
	case v.run.Services != nil:
		list = servicePromises(v.run)
	case v.run.NodePort != nil:
		list = nodePortPromises()
	case v.run.Policy != nil:
		list = policyPromises(v.run)
	}
	var rows []promiseRow
	for _, p := range list {
		rows = append(rows, p.row(v))
	}
	return rows
}

func (p promise) row(v *view) promiseRow {
	show, sign := p.show, "≥ "
	if show == nil {
		show = func(value float64) string { return ratio(&value) }
	}
	if p.atMost {
		sign = "≤ "
	}
	wanted := strconv.FormatFloat(p.bound, 'f', -1, 64)
	if p.show != nil {
		wanted = show(p.bound)
	}
	r := promiseRow{What: p.what, Wanted: sign + wanted, Got: dash, Interval: dash, Kept: notMeasured, Decided: dash}
	found, ok := p.got(v)
	if !ok || found.N == 0 {
		return r
	}
	r.Got = show(found.Median)
	if found.Low != nil && found.High != nil {
		r.Interval = show(*found.Low) + "–" + show(*found.High)
	} else if p.beside != nil {
		r.Interval = p.beside()
	}
	r.Kept = notKept
	if p.keptBy(found.Median) {
		r.Kept = kept
	}
	if p.median {
		r.Decided = p.decided(found)
	}
	if p.brokeOff {
		r.Interval = strings.TrimPrefix(r.Interval+"; broke off", dash+"; ")
	}
	if (p.brokeOff || p.incomplete) && r.Kept == kept {
		r.Kept = notMeasured
	}
	return r
}

// keptBy says whether a value is within the bound.
func (p promise) keptBy(value float64) bool {
	if p.atMost {
		return value <= p.bound
	}
	return value >= p.bound
}

// decided says whether both ends of the interval of a median say the same of the promise.
func (p promise) decided(found stats.Interval) string {
	switch {
	case found.Low == nil || found.High == nil:
		return fewRounds
	case p.keptBy(*found.Low) == p.keptBy(*found.High):
		return decided
	}
	return open
}

// levels are the numbers of Services that a workload was run with.
func levels(run *result.Run, of string) []int {
	var list []int
	for _, w := range run.Workloads {
		if w.Of == of && w.Target == result.ToClusterIP {
			list = append(list, w.Services)
		}
	}
	slices.Sort(list)
	return list
}

// through is the name of the workload with that many Services, empty where there is none.
func through(run *result.Run, of string, services int) string {
	for _, w := range run.Workloads {
		if w.Of == of && w.Target == result.ToClusterIP && w.Services == services {
			return w.Name
		}
	}
	return ""
}

func servicePromises(run *result.Run) []promise {
	var list []promise
	for _, of := range []string{"tcp_rr", "tcp_crr", "tcp_stream_128k"} {
		title := of
		for _, w := range run.Workloads {
			if w.Name == of {
				title = w.Title
			}
		}
		list = append(list, promise{
			what: "ClusterIP against pod IP, " + title, bound: 0.98, median: true,
			got: func(v *view) (stats.Interval, bool) {
				return v.within(through(run, of, 1), atSocket, of, atSocket, result.OneCore)
			},
		})
	}
	const most = 10000
	var created result.ServiceConvergence
	for _, c := range run.Services.Convergence {
		if c.Network == atSocket && c.Change == result.ServiceCreated && c.Services == most {
			created = c
		}
	}
	started := syncOf(run, atSocket, most, 10)
	return append(list,
		promise{
			what: "ClusterIP, TCP_CRR with 10,000 Services against 1", bound: 0.97, median: true,
			got: func(v *view) (stats.Interval, bool) {
				return v.within(through(run, "tcp_crr", most), atSocket, through(run, "tcp_crr", 1), atSocket, result.OneCore)
			},
		},
		promise{
			what: "Service with 10 backends created among 10,000, until traffic follows, P99", bound: 50, atMost: true, show: inUnit("ms"),
			got: func(*view) (stats.Interval, bool) {
				return exactly(stats.Quantile(created.Milliseconds, 0.99), len(created.Milliseconds))
			},
			brokeOff: created.Error != "",
		},
		promise{
			what: "10,000 Services × 10 backends from nothing until they work, the slowest start", bound: 3, atMost: true, show: inUnit("s"),
			got: func(*view) (stats.Interval, bool) {
				if len(started.Seconds) > 0 {
					return exactly(slices.Max(started.Seconds), len(started.Seconds))
				}
				return stats.Interval{}, false
			},
			brokeOff: started.Error != "",
		},
		promise{
			what: "Resident memory of the agent with them, in MB of 10⁶ bytes", bound: 120, atMost: true, show: inUnit("MB"),
			got: func(*view) (stats.Interval, bool) {
				return stats.Interval{Median: float64(started.RSSBytes) / 1e6, N: 1}, started.RSSBytes > 0
			},
		})
}

// syncOf is how a contender took in so many Services; zero where the run does not have it.
func syncOf(run *result.Run, contender string, services, backends int) result.Sync {
	for _, s := range run.Services.Syncs {
		if s.Network == contender && s.Services == services && s.Backends == backends {
			return s
		}
	}
	return result.Sync{}
}

// exactly is a figure that has no interval.
func exactly(value float64, n int) (stats.Interval, bool) {
	return stats.Interval{Median: value, N: n}, true
}

func inUnit(unit string) func(float64) string {
	return func(v float64) string { return quantity(v, unit) }
}

func nodePortPromises() []promise {
	const saturation = "nodeport_saturation"
	against := func(what string, bound float64, workload, a, b string, placement result.Placement) promise {
		return promise{what: what, bound: bound, median: true, got: func(v *view) (stats.Interval, bool) { return v.within(workload, a, workload, b, placement) }}
	}
	rate := func(what string, bound float64, contender string) promise {
		return promise{what: what, bound: bound, median: true, show: inUnit("/s"), got: func(v *view) (stats.Interval, bool) {
			return v.median(saturation, contender, result.OneCore)
		}}
	}
	return []promise{
		against("NodePort packets at saturation of the forwarding node: XDP against kube-proxy iptables", 4, saturation, atXDP, iptables, result.ForwarderCore),
		against("the same: XDP against tc", 2, saturation, atXDP, atTC, result.ForwarderCore),
		against("the same: tc against kube-proxy iptables", 1.6, saturation, atTC, iptables, result.ForwarderCore),
		rate("everything on one core: tc", 450e3, atTC),
		rate("everything on one core: XDP", 650e3, atXDP),
		against("NodePort TCP_RR, tc, backend on another node, against node", 0.8, "nodeport_tcp_rr", atTC, baseline, result.OneCore),
	}
}

// within is the median of the per-round ratios of one contender's figure to another's, of the same or another workload.
func (v *view) within(workload, contender, ofWorkload, of string, placement result.Placement) (stats.Interval, bool) {
	figure, other := v.figureNamed(workload, placement), v.figureNamed(ofWorkload, placement)
	if figure == nil || other == nil {
		return stats.Interval{}, false
	}
	base := map[int]float64{}
	for _, p := range other.points(of) {
		if p.value > 0 && !p.discarded {
			base[p.round] = p.value
		}
	}
	var ratios []float64
	for _, p := range figure.points(contender) {
		if base[p.round] > 0 && !p.discarded {
			ratios = append(ratios, p.value/base[p.round])
		}
	}
	return stats.MedianOf(ratios), len(ratios) > 0
}

// median is that of a contender's figure.
func (v *view) median(workload, contender string, placement result.Placement) (stats.Interval, bool) {
	figure := v.figureNamed(workload, placement)
	if figure == nil {
		return stats.Interval{}, false
	}
	var values []float64
	for _, p := range figure.points(contender) {
		if !p.discarded {
			values = append(values, p.value)
		}
	}
	return stats.MedianOf(values), len(values) > 0
}

// figureNamed finds the figure of one process across nodes.
func (v *view) figureNamed(workload string, placement result.Placement) *figure {
	for i, f := range v.figures {
		if f.workload == workload && f.placement == placement && f.path == result.CrossNode && f.procs <= 1 {
			return &v.figures[i]
		}
	}
	return nil
}

// promiseFinding counts the promises, and names those that are not kept, and those of which chance may have said so.
func promiseFinding(rows []promiseRow) *finding {
	if len(rows) == 0 {
		return nil
	}
	n, measured, undecided := 0, 0, 0
	detail := ""
	for _, r := range rows {
		if r.Kept != notMeasured {
			measured++
		}
		switch r.Kept {
		case kept:
			n++
			if r.isOpen() {
				undecided++
			}
		case notKept:
			detail += fmt.Sprintf("Not kept: %s: %s, wanted %s", r.What, r.Got, r.Wanted)
			if r.isOpen() {
				detail += fmt.Sprintf(" (not decided: %s)", r.why())
			}
			detail += ". "
		}
	}
	if undecided > 0 {
		detail += fmt.Sprintf("Of those that are kept %d are not decided: another run may find them not kept. ", undecided)
	}
	f := &finding{Lead: fmt.Sprintf("%d of %s kept, of those that this run measured.", n, plural(measured, "promise")), Detail: detail}
	if measured < len(rows) {
		f.Detail += fmt.Sprintf("%d of %d are not measured by this run.", len(rows)-measured, len(rows))
	}
	return f
}

// Broken says that the promise is not kept.
func (r promiseRow) Broken() bool { return r.Kept == notKept }

// isOpen says that chance may have put the median on its side of the bound.
func (r promiseRow) isOpen() bool { return r.Decided == open || r.Decided == fewRounds }

// why says what leaves a promise open.
func (r promiseRow) why() string {
	if r.Decided == fewRounds {
		return "too few rounds for an interval"
	}
	return "the 95 % interval is " + r.Interval
}
