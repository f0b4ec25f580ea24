package table

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic gives the time by which maps are stamped (CLOCK_MONOTONIC, since the machine started).
func Monotonic() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read monotonic clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
