package policy

import (
	"time"

	"golang.org/x/sys/unix"
)

// The pace of passes.
const (
	// passShare limits passes to one tenth of a CPU while changes keep coming, by the CPU time of the last one.
	passShare = 10
	// passGap bounds how long a change waits for that, unless passes would then take more than passMost of a CPU, one
	// quarter. passLongest bounds the time between two passes in any case, so that a long pass does not delay the
	// next changes.
	passGap     = 100 * time.Millisecond
	passMost    = 4
	passLongest = 500 * time.Millisecond
)

// gapAfter is how long changes coalesce after a pass of so much CPU time. A pass for a new pod does not wait.
func gapAfter(pass time.Duration) time.Duration {
	return min((passShare-1)*pass, max(passGap, (passMost-1)*pass), passLongest)
}

// threadTime is the CPU time of the calling thread. Wall-clock time would not do: on a node whose CPUs are busy a
// pass takes ten times as long, and changes would wait all the longer.
func threadTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		return 0 // internal error: the clock always exists
	}
	return time.Duration(now.Nano())
}
