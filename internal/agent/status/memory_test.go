package status

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// Small clusters share one limit; a larger state gets some memory on top.
func TestMemoryLimit(t *testing.T) {
	for live, want := range map[uint64]int64{0: 208 << 20, 100 << 20: 208 << 20, 200 << 20: 280 << 20, 1 << 30: 1433 << 20} {
		if got := limitFor(live); got>>20 != want>>20 {
			t.Errorf("the limit for %d MiB in use is %d MiB, want %d", live>>20, got>>20, want>>20)
		}
	}
}

// A limit of the environment is not changed.
func TestMemoryLimitOfOthersStays(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, limited := range []bool{true, false} {
		debug.SetMemoryLimit(math.MaxInt64 - 1)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = BoundMemory(ctx, limited) }()
			synctest.Wait()
			cancel()
		})
		if stays := debug.SetMemoryLimit(-1) == math.MaxInt64-1; stays != limited {
			t.Errorf("limited by another: %t, and that limit stays: %t", limited, stays)
		}
	}
}
