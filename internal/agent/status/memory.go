package status

import (
	"context"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
)

// The agent's memory is mostly the cluster's state, which is live. By default Go allows as much garbage on top before
// it collects, and returns it to the kernel after minutes. A limit makes it collect in time, and only when needed.
const (
	// memoryLimit is that of the Go runtime; the pages of the program add some 30 MiB.
	memoryLimit = 208 << 20
	// A larger state gets this much on top, in percent of it: too tight a limit costs CPU.
	memoryRoom     = 40
	memoryInterval = time.Second
)

// limitFor is the limit for a live heap of so many bytes.
func limitFor(live uint64) int64 { return int64(max(memoryLimit, live+live*memoryRoom/100)) }

// BoundMemory maintains the limit until ctx ends, unless the environment has set one.
func BoundMemory(ctx context.Context, limited bool) error {
	live, limit := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}, int64(0)
	for !limited && ctx.Err() == nil {
		runtimemetrics.Read(live)
		// Only larger changes: setting the limit stops the program for a moment.
		if want := limitFor(live[0].Value.Uint64()); want != limit && (want > limit || want < limit-limit/20) {
			limit = want
			debug.SetMemoryLimit(limit)
		}
		loop.Sleep(ctx, memoryInterval)
	}
	<-ctx.Done()
	return nil
}
