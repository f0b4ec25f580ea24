package flow

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Describe implements prometheus.Collector. What it describes is not checked at registration.
func (f *Flows) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. Kinds that have not been seen yet are there too.
func (f *Flows) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	events := prometheus.NewDesc("beeline_flow_events_total", "Events about connections and drops that this agent has read.", []string{"event", "verdict"}, nil)
	for _, kind := range kinds {
		counter(events, f.events[kind].Load(), kind.String(), kind.Verdict())
	}
	counter(prometheus.NewDesc("beeline_flow_connections_total", "Connections that flows have reported: the first event of each.", nil, nil), f.sessions.Load())
	counter(prometheus.NewDesc("beeline_flow_read_errors_total", "Failures to read events, or the totals of connections that have ended.", nil, nil), f.unreadable.Load())
	lost := prometheus.NewDesc("beeline_flow_lost_total", "Events about connections and drops that were not reported, since the tables of the datapath were made.", []string{"event", "reason"}, nil)
	losses, err := f.losses()
	if err != nil {
		out <- prometheus.NewInvalidMetric(lost, err)
		return
	}
	for _, l := range losses {
		counter(lost, l.Events, l.Kind.String(), l.Reason)
	}
}
