package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/beeline-cni/beeline/internal/agent/status"
)

var descMapAge = prometheus.NewDesc("beeline_map_count_age_seconds", "Age of the entry counts of BPF maps: large tables are counted in the background, and a scrape does not wait long.", nil, nil)

// collectMaps collects the last counts of maps.
func (c *nodeCollector) collectMaps(out chan<- prometheus.Metric, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	maps, at, err := c.agent.mapCounts.Latest(status.ScrapePatience)
	if err != nil {
		out <- prometheus.NewInvalidMetric(descMapEntries, err)
		return
	}
	for _, m := range maps {
		gauge(descMapBytes, float64(m.Bytes), m.Name)
		gauge(descMapEntries, float64(m.Entries), m.Name)
		gauge(descMapMax, float64(m.MaxEntries), m.Name)
		if m.Name == "backends" && c.agent.services != nil {
			gauge(descBackends, float64(m.Entries))
		}
	}
	if !at.IsZero() {
		gauge(descMapAge, time.Since(at).Seconds())
	}
}
