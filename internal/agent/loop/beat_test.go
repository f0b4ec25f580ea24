package loop

import (
	"testing"
	"time"
	"unsafe"
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

// Setting the clock makes no loop stuck, and hides none that is.
func TestClockStepsAreNoHeartbeats(t *testing.T) {
	var beats Beats
	beat := beats.Add("a loop")
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		beat.Round(func() {
			if err := beats.Stuck(afterStep(t, time.Now(), step)); err != nil {
				t.Errorf("a step of %s: %v", step, err)
			}
			if err := beats.Stuck(afterStep(t, time.Now().Add(StuckAfter+time.Second), step)); err == nil {
				t.Errorf("a step of %s hides a stuck loop", step)
			}
		})
	}
}
