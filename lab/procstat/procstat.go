// Package procstat reads the CPU time that a machine has spent, from /proc/stat.
package procstat

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
)

// HZ is how many ticks a second has in /proc/stat, on every architecture Linux has.
const HZ = 100

// Ticks is the time of one CPU since boot in /proc/stat, by mode, in 1/HZ s. The kernel takes samples (250 times a
// second on this project's machine), so short differences are rough.
type Ticks struct {
	User, Nice, System, Idle, IOWait, IRQ, Softirq, Steal uint64
}

// Busy is the time in which a CPU ran something; steal is what the hypervisor took.
func (t Ticks) Busy() uint64 { return t.User + t.Nice + t.System + t.IRQ + t.Softirq }

// Total is all the time that passed.
func (t Ticks) Total() uint64 { return t.Busy() + t.Idle + t.IOWait + t.Steal }

// Minus is what passed since an earlier reading.
func (t Ticks) Minus(o Ticks) Ticks {
	// iowait may step back: the kernel documentation says so.
	sub := func(a, b uint64) uint64 {
		if a < b {
			return 0
		}
		return a - b
	}
	return Ticks{
		sub(t.User, o.User), sub(t.Nice, o.Nice), sub(t.System, o.System), sub(t.Idle, o.Idle),
		sub(t.IOWait, o.IOWait), sub(t.IRQ, o.IRQ), sub(t.Softirq, o.Softirq), sub(t.Steal, o.Steal),
	}
}

// Plus adds the time of another CPU.
func (t Ticks) Plus(o Ticks) Ticks {
	return Ticks{
		t.User + o.User, t.Nice + o.Nice, t.System + o.System, t.Idle + o.Idle,
		t.IOWait + o.IOWait, t.IRQ + o.IRQ, t.Softirq + o.Softirq, t.Steal + o.Steal,
	}
}

// Parse reads the lines of single CPUs in the format of /proc/stat, by the CPU's number.
func Parse(r io.Reader) (map[int]Ticks, error) {
	cpus := map[int]Ticks{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "cpu") || strings.HasPrefix(line, "cpu ") {
			continue
		}
		var cpu int
		var t Ticks
		_, err := fmt.Sscanf(line, "cpu%d %d %d %d %d %d %d %d %d", &cpu,
			&t.User, &t.Nice, &t.System, &t.Idle, &t.IOWait, &t.IRQ, &t.Softirq, &t.Steal)
		if err != nil {
			return nil, fmt.Errorf("read /proc/stat: line %q: %w", line, err)
		}
		cpus[cpu] = t
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read /proc/stat: %w", err)
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("read /proc/stat: no CPUs in it")
	}
	return cpus, nil
}

// Read reads /proc/stat, which in a container is that of the machine unless something stands before it.
func Read() (map[int]Ticks, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f)
}

// Delta is what passed on some CPUs between two readings; no CPUs means all.
func Delta(before, after map[int]Ticks, cpus ...int) Ticks {
	if len(cpus) == 0 {
		cpus = slices.Collect(maps.Keys(after))
	}
	var sum Ticks
	for _, cpu := range cpus {
		sum = sum.Plus(after[cpu].Minus(before[cpu]))
	}
	return sum
}

// CPUTime is what passed, in seconds, as the result file has it. Nice counts as user and hard interrupts
// as softirq: the modes they belong to by what they do for a packet. Waiting for a disk is idling.
func (t Ticks) CPUTime() result.CPU {
	s := func(v uint64) float64 { return float64(v) / HZ }
	return result.CPU{
		User: s(t.User + t.Nice), System: s(t.System), Softirq: s(t.Softirq + t.IRQ), Steal: s(t.Steal), Idle: s(t.Idle + t.IOWait),
	}
}

// Window reads /proc/stat at both ends of the measured traffic.
type Window struct {
	before, after map[int]Ticks
	began, ended  time.Time
	// Err is why the window has no CPU time.
	Err error
}

// Mark reads the CPU time at the beginning or the end of the window.
func (w *Window) Mark(end bool) {
	stat, err := Read()
	if err != nil {
		w.Err = err
	}
	if end {
		w.after, w.ended = stat, time.Now()
	} else {
		w.before, w.began = stat, time.Now()
	}
}

// Seconds is how long the window was.
func (w *Window) Seconds() float64 { return w.ended.Sub(w.began).Seconds() }

// Passed is what passed on these CPUs; none means all.
func (w *Window) Passed(cpus ...int) Ticks { return Delta(w.before, w.after, cpus...) }
