package policy

import (
	"time"

	"golang.org/x/sys/unix"
)

// The pace of passes.
const (
	// passShare is which part of a CPU passes take at most while changes keep coming: one tenth, by what the last one took.
	passShare = 10
	// passGap is how long a change waits at most for that, unless passes would take more than passMost of a CPU then, one quarter; passLongest
	// bounds the time between two passes whatever they take, so that one that has taken long does not put off what comes next.
	passGap     = 100 * time.Millisecond
	passMost    = 4
	passLongest = 500 * time.Millisecond
)

// gapAfter is how long changes are collected after a pass that has taken so much of a CPU. A pass that is for a pod that is being added does not wait.
func gapAfter(pass time.Duration) time.Duration {
	return min((passShare-1)*pass, max(passGap, (passMost-1)*pass), passLongest)
}

// threadTime is the CPU time of the calling thread. By the clock a pass takes ten times as long on a node whose CPUs are busy, and changes would wait
// the longer for the next one the longer they have waited already.
func threadTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		return 0 // which cannot be: the clock is always there
	}
	return time.Duration(now.Nano())
}
