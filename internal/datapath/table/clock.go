package table

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns the time with which the datapath stamps map entries (CLOCK_MONOTONIC).
func Monotonic() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read monotonic clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
