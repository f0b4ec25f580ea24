package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Networks of the services, nodeport and policy suites that targets refer to.
const (
	atSocket = "beeline-socket"
	atTC     = "beeline-tc"
	atXDP    = "beeline-xdp"
	iptables = "kube-proxy-iptables"

	policyElsewhere = "beeline-policy-elsewhere"
	withPolicy      = "beeline-policy"
	policyMany      = "beeline-policy-1000"
	blocksOne       = "beeline-blocks-1"
	blocksMany      = "beeline-blocks-100000"
	allFlows        = "beeline-flows"
	flowsOff        = "beeline-policy-flows-off"
)

// target is a bound that was set before the run, and the value that the run measured.
type target struct {
	name string
	// bound is the least allowed value, or the largest if atMost.
	bound  float64
	atMost bool
	// show renders a value; nil renders a ratio.
	show func(float64) string
	// measured is without values (N = 0) if the run did not measure it.
	measured stats.Interval
	// median marks a median over the rounds, which another run would find elsewhere within the interval.
	median bool
	// detail describes a value without an interval.
	detail string
	// brokeOff reports that the measurement failed before its end, incomplete that a part of it is unknown. Such a value
	// can miss a target but not meet it.
	brokeOff, incomplete bool
}

// targetRow is a target, ready to print. Result depends on the median alone. Decided reports whether the whole interval is
// on the same side of the bound.
type targetRow struct{ Target, Required, Measured, Interval, Result, Decided string }

const (
	met         = "met"
	missed      = "missed"
	notMeasured = "not measured"

	decided   = "yes"
	undecided = "no"
	fewRounds = "no: too few rounds"
)

// targets are the targets of the run's suite, with what the run measured.
func (v *view) targets() []targetRow {
	var list []target
	switch {
	case v.run.Services != nil:
		list = v.serviceTargets()
	case v.run.NodePort != nil:
		list = v.nodePortTargets()
	case v.run.Policy != nil:
		list = v.policyTargets()
	}
	var rows []targetRow
	for _, t := range list {
		rows = append(rows, t.row())
	}
	return rows
}

func (v *view) targetSection() Section {
	t := &Table{Title: "Targets", Columns: []Column{texts("Target"), {Title: "required"}, {Title: "measured"}, texts("95 % interval"), texts("result")}}
	for _, r := range v.targets() {
		outcome := r.Result
		if r.open() {
			outcome += ", undecided"
		}
		t.add(r.Target, text(r.Required), text(r.Measured), text(r.Interval), Cell{Text: outcome, Wrong: r.Result == missed})
	}
	return Section{ID: "targets", Title: "Targets", Summary: true, Tables: []*Table{t}, Notes: []string{
		"Bounds were set before anything was measured. Ratios are medians of per-round ratios. A target is met or missed by the median. It is undecided " +
			"if the bound is within the 95 % interval, or if there are too few rounds for an interval: another run may find the opposite.",
	}}
}

func (t target) row() targetRow {
	show, required, sign := t.show, "", "≥ "
	if t.atMost {
		sign = "≤ "
	}
	if show == nil {
		show = func(value float64) string { return ratio(&value) }
		required = strconv.FormatFloat(t.bound, 'f', -1, 64)
	} else {
		required = show(t.bound)
	}
	r := targetRow{Target: t.name, Required: sign + required, Measured: dash, Interval: dash, Result: notMeasured, Decided: dash}
	i := t.measured
	if i.N == 0 {
		return r
	}
	r.Measured, r.Result = show(i.Median), missed
	if t.metBy(i.Median) {
		r.Result = met
	}
	if i.Low != nil && i.High != nil {
		r.Interval = show(*i.Low) + "–" + show(*i.High)
	} else if t.detail != "" {
		r.Interval = t.detail
	}
	switch {
	case !t.median:
	case i.Low == nil || i.High == nil:
		r.Decided = fewRounds
	case t.metBy(*i.Low) == t.metBy(*i.High):
		r.Decided = decided
	default:
		r.Decided = undecided
	}
	if t.brokeOff {
		r.Interval = strings.TrimPrefix(r.Interval+"; broke off", dash+"; ")
	}
	if (t.brokeOff || t.incomplete) && r.Result == met {
		r.Result = notMeasured
	}
	return r
}

func (t target) metBy(value float64) bool {
	if t.atMost {
		return value <= t.bound
	}
	return value >= t.bound
}

// open reports that chance may have put the median on its side of the bound.
func (r targetRow) open() bool { return r.Decided == undecided || r.Decided == fewRounds }

func inUnit(unit string) func(float64) string {
	return func(v float64) string { return quantity(v, unit) }
}

// exactly is a value without an interval; n is the number of values that it comes from.
func exactly(value float64, n int) stats.Interval {
	if n == 0 {
		return stats.Interval{}
	}
	return stats.Interval{Median: value, N: n}
}

// memory is a target for a number of bytes, in MB of 10⁶ bytes.
func memory(name string, most float64, bytes uint64) target {
	return target{name: name, bound: most, atMost: true, show: inUnit("MB"), measured: exactly(float64(bytes)/1e6, int(min(bytes, 1)))}
}

// slowest is the largest value.
func slowest(values []float64) float64 { return stats.Quantile(values, 1) }

func p99(values []float64) float64 { return stats.Quantile(values, 0.99) }

// times is a target for times: for their slowest or their P99.
func times(name string, most float64, unit string, values []float64, failed string, choose func([]float64) float64) target {
	t := target{name: name, bound: most, atMost: true, show: inUnit(unit), brokeOff: failed != ""}
	if n := len(values); n > 0 {
		t.measured = exactly(choose(values), n)
		t.detail = fmt.Sprintf("n %d, P50 %s, max %s", n, t.show(stats.Quantile(values, 0.5)), t.show(slowest(values)))
	}
	return t
}

func (v *view) serviceTargets() []target {
	const most = 10000
	run := v.run
	var list []target
	for _, of := range []string{"tcp_rr", "tcp_crr", "tcp_stream_128k"} {
		list = append(list, target{
			name: "ClusterIP against pod IP, " + v.workload(of).Title, bound: 0.98, median: true,
			measured: v.within(variant(run, of, 1), atSocket, of, atSocket, result.OneCore),
		})
	}
	var created result.ServiceConvergence
	for _, c := range run.Services.Convergence {
		if c.Network == atSocket && c.Change == result.ServiceCreated && c.Services == most {
			created = c
		}
	}
	var sync result.Sync
	for _, s := range run.Services.Syncs {
		if s.Network == atSocket && s.Services == most && s.Backends == 10 {
			sync = s
		}
	}
	return append(list,
		target{
			name: "ClusterIP, TCP_CRR with 10,000 Services against 1", bound: 0.97, median: true,
			measured: v.within(variant(run, "tcp_crr", most), atSocket, variant(run, "tcp_crr", 1), atSocket, result.OneCore),
		},
		times("Service with 10 backends created among 10,000, until traffic follows, P99", 50, "ms", created.Milliseconds, created.Error, p99),
		times("10,000 Services × 10 backends programmed from an empty start, slowest", 3, "s", sync.Seconds, sync.Error, slowest),
		memory("Resident memory of the agent with 10,000 Services (MB of 10⁶ bytes)", 120, sync.RSSBytes),
	)
}

func (v *view) nodePortTargets() []target {
	const saturation = "nodeport_saturation"
	against := func(name string, bound float64, workload, a, b string, placement result.Placement) target {
		return target{name: name, bound: bound, median: true, measured: v.within(workload, a, workload, b, placement)}
	}
	rate := func(name string, bound float64, network string) target {
		return target{name: name, bound: bound, median: true, show: inUnit("/s"), measured: v.median(saturation, network, result.OneCore)}
	}
	return []target{
		against("Packets at saturation of the forwarding node: XDP against kube-proxy iptables", 4, saturation, atXDP, iptables, result.ForwarderCore),
		against("Packets at saturation of the forwarding node: XDP against tc", 2, saturation, atXDP, atTC, result.ForwarderCore),
		against("Packets at saturation of the forwarding node: tc against kube-proxy iptables", 1.6, saturation, atTC, iptables, result.ForwarderCore),
		rate("Packets with everything on one core: tc", 450e3, atTC),
		rate("Packets with everything on one core: XDP", 650e3, atXDP),
		against("NodePort TCP_RR at tc, backend on another node, against node", 0.8, "nodeport_tcp_rr", atTC, stats.Baseline, result.OneCore),
	}
}

func (v *view) policyTargets() []target {
	run := v.run
	var list []target
	against := func(name, a, b string, bounds ...float64) {
		for i, w := range []string{"tcp_rr", "tcp_crr", "tcp_stream_128k"} {
			list = append(list, target{name: name + ", " + v.workload(w).Title, bound: bounds[i%len(bounds)], median: true, measured: v.within(w, a, w, b, v.placement())})
		}
	}
	against("No policy on the pod, policies elsewhere", policyElsewhere, beeline, 0.99)
	against("Allowing policies on both pods", withPolicy, beeline, 0.97, 0.93, 0.98)
	against("100,000 ipBlocks against 1", blocksMany, blocksOne, 0.98)
	against("Flows on, by default, with policies", withPolicy, flowsOff, 0.97)
	against("Flows of all pods, without policies", allFlows, beeline, 0.97)

	var many result.PolicyCompile
	for _, c := range run.Policy.Compiled {
		if c.Network == policyMany {
			many = c
		}
	}
	full := "1,000 policies × 1,000 pods"
	if many.LocalPods > 0 {
		full += fmt.Sprintf(" (%d local)", many.LocalPods)
	}
	list = append(list,
		times(full+" in the kernel from an empty start, slowest", 1000, "ms", many.FullMilliseconds, many.Error, slowest),
		times("One label change among them in the kernel, slowest", 100, "ms", many.ChangeMilliseconds, many.Error, slowest),
		memory("Policy tables with them (MB of 10⁶ bytes)", 32, many.TableBytes),
	)
	for _, change := range []result.PolicyChange{result.LabelDenies, result.LabelAllows, result.PolicyAdded, result.PolicyRemoved} {
		var c result.PolicyConvergence
		for _, one := range run.Policy.Convergence {
			if one.Network == policyMany && one.Change == change {
				c = one
			}
		}
		list = append(list, times("New connections obey: "+policyChanges[change]+", P99", 100, "ms", c.Milliseconds, c.Error, p99))
	}
	return append(list, connectivityTarget(run))
}

// connectivityTarget counts the connections of all of Beeline's networks with a wrong outcome.
func connectivityTarget(run *result.Run) target {
	wrong, known := 0, 0
	t := target{name: "Connections with a wrong outcome, all of Beeline's networks", atMost: true, show: func(n float64) string { return fmt.Sprint(int(n)) }}
	for _, c := range run.Policy.Connectivity {
		if !isBeeline(c.Network) {
			continue
		}
		t.brokeOff = t.brokeOff || c.Error != ""
		for _, one := range c.Connections {
			if one.Unknown != "" {
				continue
			}
			known++
			if one.Connected != one.Allowed {
				wrong++
			}
		}
	}
	t.measured, t.detail = exactly(float64(wrong), known), fmt.Sprintf("of %d", known)
	if n := unknownConnections(run, beeline); n > 0 {
		t.incomplete = true
		t.detail += fmt.Sprintf(", %d %s", n, unknown)
	}
	return t
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

// variant is the name of the workload to a ClusterIP with that many Services, or empty.
func variant(run *result.Run, of string, services int) string {
	for _, w := range run.Workloads {
		if w.Of == of && w.Target == result.ToClusterIP && w.Services == services {
			return w.Name
		}
	}
	return ""
}
