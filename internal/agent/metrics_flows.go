package agent

import "github.com/prometheus/client_golang/prometheus"

var (
	descFlowEvents   = prometheus.NewDesc("beeline_flow_events_total", "Events about connections and drops that this agent has read.", []string{"event", "verdict"}, nil)
	descFlowSessions = prometheus.NewDesc("beeline_flow_sessions_total", "Connections that flows have told of: the first events about each.", nil, nil)
	descFlowLost     = prometheus.NewDesc("beeline_flow_lost_total", "Events about connections and drops that were not told, since the tables of the datapath were made.", []string{"event", "why"}, nil)
	descFlowErrors   = prometheus.NewDesc("beeline_flow_read_errors_total", "Attempts to read events, or the totals of connections that have ended, that went wrong.", nil, nil)
)

// collectFlows tells of flows, also of kinds that have not been seen yet.
func (c *nodeCollector) collectFlows(out chan<- prometheus.Metric, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	f := c.agent.flows
	for _, kind := range kindsOfFlows {
		counter(descFlowEvents, float64(f.events[kind].Load()), kind.String(), string(kind.Verdict()))
	}
	counter(descFlowSessions, float64(f.sessions.Load()))
	counter(descFlowErrors, float64(f.unreadable.Load()))
	losses, err := f.losses()
	if err != nil {
		out <- prometheus.NewInvalidMetric(descFlowLost, err)
		return
	}
	for _, l := range losses {
		counter(descFlowLost, float64(l.Events), l.Kind.String(), l.Why)
	}
}
