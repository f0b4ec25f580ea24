package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrRealtime says that the kernel preempts BPF programs (PREEMPT_RT, in the mainline since Linux 6.12): two packets of one CPU could then be
// in the same program at a time, and take each other's scratch, which there is one of for each CPU.
var ErrRealtime = errors.New("this is a PREEMPT_RT kernel, which lets one packet's program be interrupted by another's on the same CPU: what programs keep for each CPU is not safe on it; boot a kernel without PREEMPT_RT")

// notRealtime is nil unless the running kernel is a PREEMPT_RT one.
func notRealtime() error {
	flag, err := os.ReadFile("/sys/kernel/realtime")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("find out whether the kernel is a PREEMPT_RT one: %w", err)
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

// isRealtime tells by the content of /sys/kernel/realtime, which kernels with the patch have, and by the version that uname gives, as
// "#1 SMP PREEMPT_RT Debian 6.12.48-1": scripts/mkcompile_h, later init/Makefile, put it there.
func isRealtime(flag, version string) bool {
	return strings.TrimSpace(flag) == "1" || strings.Contains(version, "PREEMPT_RT") || strings.Contains(version, "PREEMPT RT")
}
