package endpoint

import (
	"encoding/json"
	"testing"
	"time"
	"unsafe"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// afterStep is a time of this process after the system clock was set: wall-clock time has changed, monotonic time has
// not.
func afterStep(t *testing.T, now time.Time, by time.Duration) time.Time {
	t.Helper()
	const wall, ext, seconds = 0, 1, 30 // the fields of time.Time: seconds since 1885 begin at that bit of the first, and the second is monotonic
	fields := (*[2]int64)(unsafe.Pointer(&now))
	before := now
	fields[wall] += int64(by/time.Second) << seconds
	if now.Sub(before) != 0 || now.Round(0).Sub(before.Round(0)) != by || fields[ext] == 0 {
		t.Fatalf("%v is not %v after a step of %s", now, before, by)
	}
	return now
}

// Endpoints stay in the order in which they were added, also after the clock was set back and they were read from
// files.
func TestEndpointsAreInOrder(t *testing.T) {
	now := time.Now()
	e := &Endpoints{all: map[string]agentapi.Endpoint{"bl1": {Added: now.Round(0)}, "bl2": {Added: now.Add(-time.Minute).Round(0)}, "bl3": {}}}
	for _, at := range []time.Time{now.Add(-time.Hour), afterStep(t, now, -time.Hour), now, now.Add(time.Hour), now} {
		added := e.nextAdded(at)
		for _, p := range e.all {
			if !added.After(p.Added) {
				t.Errorf("added at %s, after one of %s", added, p.Added)
			}
		}
		var read agentapi.Endpoint
		if text, err := json.Marshal(agentapi.Endpoint{Added: added}); err != nil || json.Unmarshal(text, &read) != nil || !read.Added.Equal(added) {
			t.Errorf("%s is %s in a file", added, read.Added)
		}
		e.all[added.String()] = agentapi.Endpoint{Added: added}
	}
}
