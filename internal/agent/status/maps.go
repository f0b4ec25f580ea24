package status

import (
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// ScrapePatience is how long a scrape waits for map entries to be counted, before it gets the last count.
const ScrapePatience = 250 * time.Millisecond

// MapCounts holds the last counts of map entries. Counting reads whole tables, which takes seconds when they are
// large and full. It runs once at a time, in the background.
type MapCounts struct {
	// Read counts.
	Read func() ([]table.MapInfo, error)

	mu sync.Mutex
	// under is closed at the end of the running count; nil if there is none.
	under chan struct{}
	maps  []table.MapInfo
	at    time.Time
	err   error
}

// Latest gives the newest count that is available within patience, and when it started; the zero time means none.
func (c *MapCounts) Latest(patience time.Duration) (maps []table.MapInfo, at time.Time, err error) {
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

func (c *MapCounts) count(done chan struct{}) {
	begin := time.Now()
	maps, err := c.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.maps, c.at = maps, begin
	}
	c.err = err
	c.under = nil
	close(done)
}
