package agent

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/beeline-cni/beeline/internal/datapath/table"
)

var descMapAge = prometheus.NewDesc("beeline_map_count_age_seconds", "How long ago the entries of BPF maps were counted: large tables are counted beside the scrape, which does not wait long for it.", nil, nil)

// scrapePatience is how long a scrape waits for the entries of maps to be counted, before it tells the last count.
const scrapePatience = 250 * time.Millisecond

// mapCounts is what was last known of the maps. Counting reads whole tables, which takes seconds when they are large and full: it is done
// once at a time, beside those who ask.
type mapCounts struct {
	// read counts.
	read func() ([]table.MapInfo, error)

	mu sync.Mutex
	// under is closed when the count that is under way has ended; nil while there is none.
	under chan struct{}
	maps  []table.MapInfo
	at    time.Time
	err   error
}

// latest gives the newest count that is there within patience, and when it began; none has zero time.
func (c *mapCounts) latest(patience time.Duration) (maps []table.MapInfo, at time.Time, err error) {
	c.mu.Lock()
	if c.under == nil {
		c.under = make(chan struct{})
		go c.count(c.under)
	}
	under := c.under
	c.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-under:
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.maps, c.at, c.err
}

func (c *mapCounts) count(done chan struct{}) {
	begin := time.Now()
	maps, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.maps, c.at = maps, begin
	}
	c.err = err
	c.under = nil
	close(done)
}

// collectMaps tells of maps as they were last counted.
func (c *nodeCollector) collectMaps(out chan<- prometheus.Metric, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	maps, at, err := c.agent.mapCounts.latest(scrapePatience)
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
