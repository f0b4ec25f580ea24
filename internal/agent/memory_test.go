package agent

import "testing"

// Small clusters share one limit, and state that does not fit has room beside it.
func TestMemoryLimit(t *testing.T) {
	for live, want := range map[uint64]int64{0: 200 << 20, 100 << 20: 200 << 20, 200 << 20: 280 << 20, 1 << 30: 1433 << 20} {
		if got := limitFor(live); got>>20 != want>>20 {
			t.Errorf("the limit for %d MiB in use is %d MiB, want %d", live>>20, got>>20, want>>20)
		}
	}
}
