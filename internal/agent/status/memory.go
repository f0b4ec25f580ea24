package status

import (
	"context"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"
)

// The agent's memory. Nearly all of it is the cluster's state, which stays: Go would let as much garbage come on top before it collects, and keep
// from the kernel what that took for minutes. A limit makes it collect in time, and only where there is need.
const (
	// memoryLimit is that of the Go runtime, to which the pages of the program come, some 30 MiB.
	memoryLimit = 208 << 20
	// A cluster whose state needs more gets so much beside it, in percent of the state: a limit that is too tight would be paid for in CPU.
	memoryRoom     = 40
	memoryInterval = time.Second
)

// limitFor is the limit for a heap of which so many bytes are in use.
func limitFor(live uint64) int64 { return int64(max(memoryLimit, live+live*memoryRoom/100)) }

// BoundMemory keeps the limit until ctx ends, unless the environment has set one.
func BoundMemory(ctx context.Context, limited bool) error {
	if limited {
		<-ctx.Done()
		return nil
	}
	live := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	for limit := int64(0); ; {
		runtimemetrics.Read(live)
		// Only what is worth it: to change the limit stops the program for a moment.
		if want := limitFor(live[0].Value.Uint64()); want != limit && (want > limit || want < limit-limit/20) {
			limit = want
			debug.SetMemoryLimit(limit)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
