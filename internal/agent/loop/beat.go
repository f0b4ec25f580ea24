package loop

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// StuckAfter is how long a round may take before its loop counts as stuck: far longer than the largest cluster needs,
// and shorter than pods wait to be added.
const StuckAfter = 2 * time.Minute

// Beats are the heartbeats of all loops. A loop that waits for a lock is in a round.
type Beats struct {
	mu    sync.Mutex
	loops []*Beat
}

// Beat is the heartbeat of one loop. The zero Beat works and is reported nowhere.
type Beat struct {
	name string
	// since is when the current round started; nil between rounds. It is a Time for its monotonic clock.
	since atomic.Pointer[time.Time]
}

// Add makes the heartbeat of one more loop.
func (b *Beats) Add(name string) *Beat {
	b.mu.Lock()
	defer b.mu.Unlock()
	beat := &Beat{name: name}
	b.loops = append(b.loops, beat)
	return beat
}

// Round does the work of one round.
func (b *Beat) Round(work func()) {
	now := time.Now()
	b.since.Store(&now)
	defer b.since.Store(nil)
	work()
}

// Stuck is an error that names the loops whose current round has lasted longer than StuckAfter; nil if there is none.
func (b *Beats) Stuck(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, beat := range b.loops {
		if since := beat.since.Load(); since != nil && now.Sub(*since) > StuckAfter {
			all = append(all, fmt.Sprintf("%s has not completed a round since %s", beat.name, since.UTC().Format(time.RFC3339)))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("the agent is stuck: %s", strings.Join(all, "; "))
}
