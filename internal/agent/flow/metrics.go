package flow

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	descEvents   = prometheus.NewDesc("beeline_flow_events_total", "Events about connections and drops that this agent has read.", []string{"event", "verdict"}, nil)
	descSessions = prometheus.NewDesc("beeline_flow_connections_total", "Connections that flows have reported: the first event of each.", nil, nil)
	descLost     = prometheus.NewDesc("beeline_flow_lost_total", "Events about connections and drops that were not reported, since the tables of the datapath were made.", []string{"event", "reason"}, nil)
	descErrors   = prometheus.NewDesc("beeline_flow_read_errors_total", "Failures to read events, or the totals of connections that have ended.", nil, nil)
)

// Describe implements prometheus.Collector.
func (f *Flows) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descEvents, descSessions, descLost, descErrors} {
		out <- d
	}
}

// Collect implements prometheus.Collector. Kinds that have not been seen yet are there too.
func (f *Flows) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, kind := range kinds {
		counter(descEvents, f.events[kind].Load(), kind.String(), kind.Verdict())
	}
	counter(descSessions, f.sessions.Load())
	counter(descErrors, f.unreadable.Load())
	losses, err := f.losses()
	if err != nil {
		out <- prometheus.NewInvalidMetric(descLost, err)
		return
	}
	for _, l := range losses {
		counter(descLost, l.Events, l.Kind.String(), l.Reason)
	}
}
