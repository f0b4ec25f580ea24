package lb

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are histograms of passes.
type metrics struct {
	syncs   *prometheus.HistogramVec
	changes prometheus.Histogram
}

func newMetrics() metrics {
	return metrics{
		syncs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "beeline_services_sync_duration_seconds",
			Help:    "Time to translate changes of Services and to write them to the datapath.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 3},
		}, []string{"result"}),
		changes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "beeline_services_change_duration_seconds",
			Help:    "Time from the event of a change of Services or endpoints until it was active on this node.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 5, 30},
		}),
	}
}

func (m metrics) written(took time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.syncs.WithLabelValues(result).Observe(took.Seconds())
}

// Describe implements prometheus.Collector. What Collect adds is not checked at registration.
func (s *Services) Describe(out chan<- *prometheus.Desc) {
	s.metrics.syncs.Describe(out)
	s.metrics.changes.Describe(out)
}

// Collect implements prometheus.Collector.
func (s *Services) Collect(out chan<- prometheus.Metric) {
	s.metrics.syncs.Collect(out)
	s.metrics.changes.Collect(out)
	gauge := func(d *prometheus.Desc, v int) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	o, synced := s.Status(), 0
	if o.Synced {
		synced = 1
	}
	gauge(prometheus.NewDesc("beeline_services_synced", "1 when the datapath has had all Services since the agent started; missing where it does not translate Services.", nil, nil), synced)
	gauge(prometheus.NewDesc("beeline_services_problems", "Problems with Services, which `beeline status` lists.", nil, nil), len(o.All()))
	gauge(prometheus.NewDesc("beeline_services_ports", "Ports of Services on this node.", nil, nil), o.Ports)
	gauge(prometheus.NewDesc("beeline_services_frontends", "Addresses and ports of Services on this node.", nil, nil), o.Frontends)
}
