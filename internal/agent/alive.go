package agent

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stuckAfter is how long a round of a loop may take before the agent is taken for stuck: far more than the largest cluster needs, and less
// than pods wait to be added.
const stuckAfter = 2 * time.Minute

// heartbeats know of each of the agent's loops whether it is at work, and since when. A loop that waits for a lock is at work.
type heartbeats struct {
	mu    sync.Mutex
	loops []*heartbeat
}

// heartbeat is that of one loop.
type heartbeat struct {
	name string
	// since is when the present round began; nil between two. A number would be of the wall clock, which somebody may set.
	since atomic.Pointer[time.Time]
}

// add makes the heartbeat of one more loop.
func (h *heartbeats) add(name string) *heartbeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &heartbeat{name: name}
	h.loops = append(h.loops, b)
	return b
}

// round does the work of one round.
func (b *heartbeat) round(work func()) {
	now := time.Now()
	b.since.Store(&now)
	defer b.since.Store(nil)
	work()
}

// stuck is an error that names the loops whose present round has lasted longer than stuckAfter; nil if there is none.
func (h *heartbeats) stuck(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, b := range h.loops {
		if since := b.since.Load(); since != nil && now.Sub(*since) > stuckAfter {
			all = append(all, fmt.Sprintf("%s has been at one piece of work since %s", b.name, since.UTC().Format(time.RFC3339)))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("the agent is stuck: %s", strings.Join(all, "; "))
}

// readiness is what was found out last about whether pods can be added. It is read without the agent's lock.
type readiness struct{ err error }

// tellReadiness publishes it. The lock is held.
func (a *Agent) tellReadiness() { a.readiness.Store(&readiness{a.unready()}) }
