package policy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// metrics are histograms of passes.
type metrics struct {
	steps   *prometheus.HistogramVec
	changes prometheus.Histogram
}

var (
	descPolicies   = prometheus.NewDesc("beeline_policies", "NetworkPolicies of the cluster by their state on this node: active, closed or pending.", []string{"state"}, nil)
	descPods       = prometheus.NewDesc("beeline_policy_pods", "Pods of this node that NetworkPolicies select: closed ones are isolated in some direction because a policy is invalid, does not fit or is not synced, or are isolated from the kernel stack because a program is missing.", []string{"state"}, nil)
	descSets       = prometheus.NewDesc("beeline_policy_sets", "Active sets of rules of NetworkPolicies on this node.", nil, nil)
	descIdentities = prometheus.NewDesc("beeline_policy_identities", "Addresses with an identity: those of pods and of this node.", nil, nil)
	descBlocks     = prometheus.NewDesc("beeline_policy_blocks", "ipBlocks and exceptions with an identity.", nil, nil)
	descSynced     = prometheus.NewDesc("beeline_policy_synced", "1 when the datapath has had all NetworkPolicies since the agent started; missing where it does not enforce them.", nil, nil)
)

func newMetrics() metrics {
	return metrics{
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "beeline_policy_step_duration_seconds",
			Help:    "Time to compile NetworkPolicies, and to write them to the datapath.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 3},
		}, []string{"step", "result"}),
		changes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "beeline_policy_change_duration_seconds",
			Help:    "Time from the event of a change of NetworkPolicies, or of what they select from, until it was active on this node.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 5, 30},
		}),
	}
}

// applied counts a pass.
func (m metrics) applied(compile, apply time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.steps.WithLabelValues("compile", "success").Observe(compile.Seconds())
	m.steps.WithLabelValues("apply", result).Observe(apply.Seconds())
}

// Describe implements prometheus.Collector.
func (p *Policies) Describe(out chan<- *prometheus.Desc) {
	p.metrics.steps.Describe(out)
	p.metrics.changes.Describe(out)
	for _, d := range []*prometheus.Desc{descPolicies, descPods, descSets, descIdentities, descBlocks, descSynced} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Policies) Collect(out chan<- prometheus.Metric) {
	p.metrics.steps.Collect(out)
	p.metrics.changes.Collect(out)
	collect(p.Status(), func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	})
}

func collect(s agentapi.PolicyStatus, gauge func(d *prometheus.Desc, v int, labels ...string)) {
	synced := 0
	if s.Synced {
		synced = 1
	}
	gauge(descSynced, synced)
	gauge(descPolicies, s.Policies-s.Closed-s.Pending, "active")
	gauge(descPolicies, s.Closed, "closed")
	gauge(descPolicies, s.Pending, "pending")
	gauge(descPods, s.Pods-s.ClosedPods, "active")
	gauge(descPods, s.ClosedPods, "closed")
	gauge(descSets, s.Sets)
	gauge(descIdentities, s.Identities)
	gauge(descBlocks, s.Blocks)
}
