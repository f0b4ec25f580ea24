package agent

import (
	"context"
	"time"
)

// The pace of passes.
const (
	// passShare is which part of a CPU passes take at most while changes keep coming: one tenth, by the time that the last one took.
	passShare = 10
	// passGap is how long a change waits at most for that, unless passes would take more than passMost of a CPU then, one quarter; passLongest
	// bounds the time between two passes whatever they take, so that one that has taken long does not put off what comes next.
	passGap     = 100 * time.Millisecond
	passMost    = 4
	passLongest = 500 * time.Millisecond
)

// gapAfter is how long changes are collected after a pass that has taken so long. A pass that is for a pod that is being added does not wait.
func gapAfter(pass time.Duration) time.Duration {
	return min((passShare-1)*pass, max(passGap, (passMost-1)*pass), passLongest)
}

// pausePasses waits until the next pass is due, so long after one has begun. It returns false when ctx ends.
func pausePasses(ctx context.Context, begun time.Time) bool {
	gap := time.NewTimer(gapAfter(time.Since(begun)))
	defer gap.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-gap.C:
		return true
	}
}
