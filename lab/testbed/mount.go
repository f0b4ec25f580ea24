package testbed

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

type mount struct{ target, fstype string }

// readMounts reads the mounts of this process in the order they were made.
func readMounts() ([]mount, error) {
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(data)), nil
}

// parseMounts reads the format of /proc/self/mountinfo, see proc_pid_mountinfo(5): the mount point is the
// fifth field, the type the one after the lone dash.
func parseMounts(mountinfo string) []mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []mount
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 1 {
			continue
		}
		mounts = append(mounts, mount{target: unescape.Replace(left[4]), fstype: right[0]})
	}
	return mounts
}

// unmountBelow unmounts everything at or below dir, the newest first.
func unmountBelow(dir string) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		if !below(m.target, dir) {
			continue
		}
		if err := unix.Unmount(m.target, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.target, err))
		}
	}
	return errors.Join(errs...)
}

func mountBPF(dir string) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	err := unix.Mount("bpf", dir, "bpf", flags, "mode=0700")
	if errors.Is(err, unix.ENODEV) {
		return errors.New("this kernel has no BPF file system (CONFIG_BPF_SYSCALL)")
	}
	if err != nil {
		return fmt.Errorf("mount BPF file system at %s: %w", dir, err)
	}
	return nil
}
