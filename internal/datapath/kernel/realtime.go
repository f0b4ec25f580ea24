package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrRealtime means that the kernel preempts BPF programs (PREEMPT_RT, in mainline since Linux 6.12). Two packets on
// one CPU could then run the same program at once and overwrite each other's per-CPU scratch.
var ErrRealtime = errors.New("this is a PREEMPT_RT kernel: it preempts BPF programs, so their per-CPU data is not safe; boot a kernel without PREEMPT_RT")

// notRealtime returns ErrRealtime on a PREEMPT_RT kernel.
func notRealtime() error {
	flag, err := os.ReadFile("/sys/kernel/realtime")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("check for a PREEMPT_RT kernel: %w", err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("read the kernel's version: %w", err)
	}
	if isRealtime(string(flag), unix.ByteSliceToString(u.Version[:])) {
		return ErrRealtime
	}
	return nil
}

// isRealtime checks the content of /sys/kernel/realtime, which kernels with the patch have, and the version of uname,
// such as "#1 SMP PREEMPT_RT Debian 6.12.48-1".
func isRealtime(flag, version string) bool {
	return strings.TrimSpace(flag) == "1" || strings.Contains(version, "PREEMPT_RT") || strings.Contains(version, "PREEMPT RT")
}
