package report

import (
	"fmt"
	"strconv"

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
	// unit is that of the bound and of the value; empty for a ratio.
	unit string
	// measured is without values (N = 0) if the run did not measure it.
	measured stats.Interval
	// detail describes a value without an interval. Without a detail the value is a median over the rounds, which another
	// run would find elsewhere within the interval.
	detail string
	// incomplete marks a measurement that failed before its end, or of which a part is unknown. It can miss a target but not
	// meet it.
	incomplete bool
}

const (
	met         = "met"
	missed      = "missed"
	notMeasured = "not measured"
	undecided   = ", undecided"
	brokeOff    = "; broke off"
)

func (v *view) targetSection() Section {
	t := newTable(Everywhere, "Targets", "", "Target", "required", "measured", "95 % interval", "result")
	for _, one := range v.targets() {
		one.addTo(t)
	}
	return Section{ID: "targets", Title: "Targets", Summary: true, Tables: []*Table{t}, Notes: []string{
		"Bounds were set before anything was measured. Ratios are medians of per-round ratios. A target is met or missed by the median. It is undecided " +
			"if the bound is within the 95 % interval, or if there are too few rounds for an interval: another run may find the opposite.",
	}}
}

// addTo adds the target's row to the table.
func (t target) addTo(table *Table) {
	required := "≥ " + t.show(t.bound)
	if t.atMost {
		required = "≤ " + t.show(t.bound)
	}
	if t.unit == "" {
		required = "≥ " + strconv.FormatFloat(t.bound, 'f', -1, 64)
	}
	measured, span := dash, dash
	if i := t.measured; i.N > 0 {
		measured, span = t.show(i.Median), t.detail
		if t.detail == "" && i.Low != nil && i.High != nil {
			span = t.show(*i.Low) + "–" + t.show(*i.High)
		}
	}
	c := Cell{Text: t.result()}
	if t.result() == missed || t.result() == missed+undecided {
		c.Class = "wrong"
	}
	table.add(t.name, required, measured, span, c)
}

// result depends on the median alone. It is undecided unless the whole interval is on the same side of the bound.
func (t target) result() string {
	i := t.measured
	text := missed
	switch {
	case i.N == 0, t.incomplete && t.metBy(i.Median):
		return notMeasured
	case t.metBy(i.Median):
		text = met
	}
	if t.detail == "" && (i.Low == nil || i.High == nil || t.metBy(*i.Low) != t.metBy(*i.High)) {
		text += undecided
	}
	return text
}

func (t target) metBy(value float64) bool {
	if t.atMost {
		return value <= t.bound
	}
	return value >= t.bound
}

func (t target) show(v float64) string {
	switch t.unit {
	case "":
		return ratio(&v)
	case "connections":
		return fmt.Sprint(v)
	}
	return quantity(v, t.unit)
}

// memory is a target for a number of bytes, in MB of 10⁶ bytes.
func memory(name string, most float64, bytes uint64) target {
	t := target{name: name, bound: most, atMost: true, unit: "MB", detail: dash}
	if bytes > 0 {
		t.measured = stats.Interval{Median: float64(bytes) / 1e6, N: 1}
	}
	return t
}

// The quantiles that targets for times refer to.
const (
	p50     = 0.5
	p99     = 0.99
	slowest = 1
)

// times is a target for a quantile of times. failed is why some are missing.
func times(name string, most float64, unit string, values []float64, failed string, q float64) target {
	t := target{name: name, bound: most, atMost: true, unit: unit, detail: dash, incomplete: failed != ""}
	if n := len(values); n > 0 {
		t.measured = stats.Interval{Median: stats.Quantile(values, q), N: n}
		t.detail = fmt.Sprintf("n %d, P50 %s, max %s", n, t.show(stats.Quantile(values, p50)), t.show(stats.Quantile(values, slowest)))
		if failed != "" {
			t.detail += brokeOff
		}
	}
	return t
}

// targets are the targets of the run's suite, with what the run measured.
func (v *view) targets() []target {
	switch {
	case v.run.Services != nil:
		return v.serviceTargets()
	case v.run.NodePort != nil:
		return v.nodePortTargets()
	case v.run.Policy != nil:
		return v.policyTargets()
	case v.run.Encryption != nil:
		return v.encryptionTargets()
	}
	return v.networkTargets()
}

func (v *view) serviceTargets() []target {
	const most = 10000
	run := v.run
	against := func(name string, bound float64, of string, services int, than string) target {
		return target{name: name, bound: bound, measured: v.within(variant(run, of, services), atSocket, than, atSocket, result.OneCore)}
	}
	var list []target
	for _, of := range []string{"tcp_rr", "tcp_crr", "tcp_stream_128k"} {
		list = append(list, against("ClusterIP against pod IP, "+v.workload(of).Title, 0.98, of, 1, of))
	}
	list = append(list, v.macvlanServiceTargets()...)
	created := find(run.Services.Convergence, func(c result.ServiceConvergence) bool {
		return c.Network == atSocket && c.Change == result.ServiceCreated && c.Services == most
	})
	sync := find(run.Services.Syncs, func(s result.Sync) bool { return s.Network == atSocket && s.Services == most && s.Backends == 10 })
	return append(list,
		against("ClusterIP, TCP_CRR with 10,000 Services against 1", 0.97, "tcp_crr", most, variant(run, "tcp_crr", 1)),
		times("Service with 10 backends created among 10,000, until traffic follows, P99", 50, "ms", created.Milliseconds, created.Error, p99),
		times("10,000 Services × 10 backends programmed from an empty start, slowest", 3, "s", sync.Seconds, sync.Error, slowest),
		memory("Resident memory of the agent with 10,000 Services (MB of 10⁶ bytes)", 120, sync.RSSBytes),
	)
}

func (v *view) nodePortTargets() []target {
	const saturation = "nodeport_saturation"
	against := func(name string, bound float64, workload, a, b string, placement result.Placement) target {
		return target{name: name, bound: bound, measured: v.within(workload, a, workload, b, placement)}
	}
	rate := func(name string, bound float64, network string) target {
		return target{name: name, bound: bound, unit: "/s", measured: v.median(saturation, network, result.OneCore)}
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
	run := v.run.Policy
	var list []target
	against := func(name, a, b string, bounds ...float64) {
		for i, w := range []string{"tcp_rr", "tcp_crr", "tcp_stream_128k"} {
			list = append(list, target{name: name + ", " + v.workload(w).Title, bound: bounds[i%len(bounds)], measured: v.within(w, a, w, b, v.placement())})
		}
	}
	against("No policy on the pod, policies elsewhere", policyElsewhere, beeline, 0.99)
	against("Allowing policies on both pods", withPolicy, beeline, 0.97, 0.93, 0.98)
	against("100,000 ipBlocks against 1", blocksMany, blocksOne, 0.98)
	against("Flows on, by default, with policies", withPolicy, flowsOff, 0.97)
	against("Flows of all pods, without policies", allFlows, beeline, 0.97)

	many := find(run.Compiled, func(c result.PolicyCompile) bool { return c.Network == policyMany })
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
		c := find(run.Convergence, func(c result.PolicyConvergence) bool { return c.Network == policyMany && c.Change == change })
		list = append(list, times("New connections obey: "+policyChanges[change]+", P99", 100, "ms", c.Milliseconds, c.Error, p99))
	}
	return append(list, connectivityTarget(run.Connectivity))
}

// connectivityTarget counts the connections of all of Beeline's networks with a wrong outcome.
func connectivityTarget(all []result.Connectivity) target {
	t := target{name: "Connections with a wrong outcome, all of Beeline's networks", atMost: true, unit: "connections"}
	var list []result.Connection
	failed := ""
	for _, c := range all {
		if isBeeline(c.Network) {
			list = append(list, c.Connections...)
			if c.Error != "" {
				failed = brokeOff
			}
		}
	}
	wrong, known, unclear, _ := tally(list)
	t.measured, t.detail = stats.Interval{Median: float64(wrong), N: known}, fmt.Sprintf("of %d", known)
	if unclear > 0 {
		t.detail += fmt.Sprintf(", %d %s", unclear, unknown)
	}
	t.detail += failed
	t.incomplete = failed != "" || unclear > 0
	return t
}
