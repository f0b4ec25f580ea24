package nodeport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// device is a network device of a lab, whose NAPI the bench places.
type device struct {
	netns testbed.Netns
	name  string
	// threads are the kernel's, in which the device's NAPI runs while it is threaded.
	threads []int
	// spent is the CPU time of threads that are gone.
	spent time.Duration
}

// takeFrames lets the device take in frames that come without an skb: its NAPI runs while GRO is on.
func (d *device) takeFrames(ctx context.Context) error { return d.offload(ctx, "gro", "on") }

// completeChecksums has the device send whole checksums, like frames from a network card: XDP at the other end would
// translate partial ones, which veth leaves.
func (d *device) completeChecksums(ctx context.Context) error { return d.offload(ctx, "tx", "off") }

func (d *device) offload(ctx context.Context, feature, value string) error {
	if _, err := d.netns.Output(ctx, "ethtool", "-K", d.name, feature, value); err != nil {
		return fmt.Errorf("switch %s of %s %s: %w", feature, d.name, value, err)
	}
	return nil
}

// thread moves the device's NAPI into threads of its own on one CPU. They run as soon as they have something to do, as
// softirqs do, whoever else wants the CPU: a ring of 256 frames is full in a fraction of a millisecond, and who counts
// must not lose what arrives while the generator makes more.
func (d *device) thread(cpu int) error {
	before, err := napiThreads()
	if err != nil {
		return err
	}
	if err := d.setThreaded("1"); err != nil {
		return err
	}
	after, err := napiThreads()
	if err != nil {
		return err
	}
	// Kernels before 6.17 keep a device's threads, asleep, when its NAPI leaves them.
	if came := slices.DeleteFunc(after, func(pid int) bool { return slices.Contains(before, pid) }); len(came) > 0 {
		d.threads = came
	}
	if len(d.threads) == 0 {
		return fmt.Errorf("move NAPI of %s into a thread: there is none", d.name)
	}
	var set unix.CPUSet
	set.Set(cpu)
	policy := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	for _, pid := range d.threads {
		if err := errors.Join(unix.SchedSetaffinity(pid, &set), unix.SchedSetAttr(pid, &policy, 0)); err != nil {
			return fmt.Errorf("place NAPI thread of %s: %w", d.name, err)
		}
	}
	return nil
}

// unthread brings the device's NAPI back to where packets are sent.
func (d *device) unthread() error {
	if len(d.threads) == 0 {
		return nil
	}
	now := d.running()
	if err := d.setThreaded("0"); err != nil {
		return err
	}
	if left, err := napiThreads(); err == nil && !slices.Contains(left, d.threads[0]) {
		d.spent += now
		d.threads = nil
	}
	return nil
}

// setThreaded writes the device's attribute. The file is in the sysfs of the device's namespace, which is mounted for
// as long as that takes.
func (d *device) setThreaded(value string) error {
	const mountAndWrite = `mount -t sysfs none /sys && printf %s "$2" >"/sys/class/net/$1/threaded"`
	cmd := exec.Command("/bin/sh", "-c", mountAndWrite, "sh", d.name, value)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // made private by os/exec
	var said strings.Builder
	cmd.Stderr = &said
	if err := d.netns.Run(cmd); err != nil {
		return fmt.Errorf("set threaded NAPI of %s to %s: %w: %s", d.name, value, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// cpuTime is what all threads of the device have used.
func (d *device) cpuTime() time.Duration { return d.spent + d.running() }

func (d *device) running() (sum time.Duration) {
	for _, pid := range d.threads {
		sum += threadTime(pid)
	}
	return sum
}

// threadTime is the CPU time of a process, to the nanosecond and up to now, by its own clock; 0 for one that is gone.
func threadTime(pid int) time.Duration {
	const scheduled = 2 // CPUCLOCK_SCHED of the kernel's posix-timers
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// napiThreads are all threads of the kernel that run a NAPI. Their names begin with "napi/", and no program is theirs.
func napiThreads() ([]int, error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(name), "napi/") {
			continue
		}
		dir := filepath.Dir(path)
		if _, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
