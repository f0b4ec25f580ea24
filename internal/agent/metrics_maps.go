package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/beeline-cni/beeline/internal/agent/status"
)

var descMapAge = prometheus.NewDesc("beeline_map_count_age_seconds", "How long ago the entries of BPF maps were counted: large tables are counted beside the scrape, which does not wait long for it.", nil, nil)

// collectMaps gives maps as they were last counted.
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
