package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

var (
	descPolicies         = prometheus.NewDesc("beeline_policies", "NetworkPolicies of the cluster by their state on this node: in_force, closed or pending.", []string{"state"}, nil)
	descPolicyPods       = prometheus.NewDesc("beeline_policy_pods", "Pods of this node that NetworkPolicies select: closed ones get and send nothing in some direction because a policy is not understood, does not fit or is not known, or nothing by the host's stack because a program is missing.", []string{"state"}, nil)
	descPolicySets       = prometheus.NewDesc("beeline_policy_sets", "Sets of rules of NetworkPolicies in force on this node.", nil, nil)
	descPolicyIdentities = prometheus.NewDesc("beeline_policy_identities", "Single addresses that NetworkPolicies tell apart: those of pods and of this node, and ipBlocks of one address.", nil, nil)
	descPolicyBlocks     = prometheus.NewDesc("beeline_policy_blocks", "Prefixes that NetworkPolicies tell apart.", nil, nil)
	descPolicyKnown      = prometheus.NewDesc("beeline_policy_known", "1 when the datapath has had all NetworkPolicies since the agent started; missing where it does not put them into force.", nil, nil)
	descSessions         = prometheus.NewDesc("beeline_sessions", "Connections of pods that NetworkPolicies select, and of those that flows tell of.", []string{"protocol", "state"}, nil)
	descSessionsExpired  = prometheus.NewDesc("beeline_sessions_expired_total", "Sessions that were removed when they were over.", nil, nil)
)

func (m *metrics) addPolicies() {
	m.policySteps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "beeline_policy_step_duration_seconds",
		Help:    "Time the agent took to compile NetworkPolicies, and to write them to the datapath.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 3},
	}, []string{"step", "result"})
	m.policyChanges = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "beeline_policy_change_duration_seconds",
		Help:    "Time from hearing of a change of NetworkPolicies, or of what they select from, until it was in force on this node.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 5, 30},
	})
}

// policiesApplied takes note of a pass.
func (m *metrics) policiesApplied(compile, apply time.Duration, err error) {
	m.policySteps.WithLabelValues("compile", result(nil)).Observe(compile.Seconds())
	m.policySteps.WithLabelValues("apply", result(err)).Observe(apply.Seconds())
}

func (c *nodeCollector) collectPolicies(s agentapi.PolicyStatus, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	for _, n := range c.agent.datapath.Sessions.Counts() {
		gauge(descSessions, float64(n.Sessions), cluster.Protocol(n.Protocol).String(), string(n.State))
	}
	counter(descSessionsExpired, float64(s.ExpiredSessions))
	if !s.Enforced {
		return
	}
	known := 0.0
	if s.Known {
		known = 1
	}
	gauge(descPolicyKnown, known)
	gauge(descPolicies, float64(s.Policies-s.Closed-s.Pending), "in_force")
	gauge(descPolicies, float64(s.Closed), "closed")
	gauge(descPolicies, float64(s.Pending), "pending")
	gauge(descPolicyPods, float64(s.Pods-s.ClosedPods), "in_force")
	gauge(descPolicyPods, float64(s.ClosedPods), "closed")
	gauge(descPolicySets, float64(s.Sets))
	gauge(descPolicyIdentities, float64(s.Identities))
	gauge(descPolicyBlocks, float64(s.Blocks))
}
