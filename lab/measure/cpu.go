package measure

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"golang.org/x/sys/unix"
)

// userHZ is the unit of /proc/stat on every architecture Linux has.
const userHZ = 100

// ticks is the time of one CPU since boot in /proc/stat, by mode, in 1/userHZ s. The kernel takes samples (250 times a
// second on this project's machine), so short differences are rough.
type ticks struct {
	user, nice, system, idle, iowait, irq, softirq, steal uint64
}

// busy is everything a CPU did for somebody; steal is what it was not given.
func (t ticks) busy() uint64 { return t.user + t.nice + t.system + t.irq + t.softirq }

func (t ticks) total() uint64 { return t.busy() + t.idle + t.iowait + t.steal }

func (t ticks) minus(o ticks) ticks {
	// iowait may step back: the kernel documentation says so.
	sub := func(a, b uint64) uint64 {
		if a < b {
			return 0
		}
		return a - b
	}
	return ticks{
		sub(t.user, o.user), sub(t.nice, o.nice), sub(t.system, o.system), sub(t.idle, o.idle),
		sub(t.iowait, o.iowait), sub(t.irq, o.irq), sub(t.softirq, o.softirq), sub(t.steal, o.steal),
	}
}

func (t ticks) plus(o ticks) ticks {
	return ticks{
		t.user + o.user, t.nice + o.nice, t.system + o.system, t.idle + o.idle,
		t.iowait + o.iowait, t.irq + o.irq, t.softirq + o.softirq, t.steal + o.steal,
	}
}

// parseStat reads the lines of single CPUs in the format of /proc/stat.
func parseStat(r io.Reader) (map[int]ticks, error) {
	cpus := map[int]ticks{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 0 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		cpu, err := strconv.Atoi(f[0][len("cpu"):])
		if err != nil || len(f) < 9 {
			return nil, fmt.Errorf("read /proc/stat: unexpected line %q", lines.Text())
		}
		var v [8]uint64
		for i := range v {
			if v[i], err = strconv.ParseUint(f[i+1], 10, 64); err != nil {
				return nil, fmt.Errorf("read /proc/stat: %w", err)
			}
		}
		cpus[cpu] = ticks{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read /proc/stat: %w", err)
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("read /proc/stat: no CPUs in it")
	}
	return cpus, nil
}

func readStat() (map[int]ticks, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseStat(f)
}

// sumDelta is what passed on some CPUs between two readings; no CPUs means all.
func sumDelta(before, after map[int]ticks, cpus ...int) ticks {
	var sum ticks
	if len(cpus) == 0 {
		for cpu := range after {
			sum = sum.plus(after[cpu].minus(before[cpu]))
		}
		return sum
	}
	for _, cpu := range cpus {
		sum = sum.plus(after[cpu].minus(before[cpu]))
	}
	return sum
}

// cpuTime is what passed, in seconds, as the result file has it. Nice counts as user and hard interrupts
// as softirq: the modes they belong to by what they do for a packet. Waiting for a disk is idling.
func (t ticks) cpuTime() result.CPU {
	s := func(v uint64) float64 { return float64(v) / userHZ }
	return result.CPU{
		User: s(t.user + t.nice), System: s(t.system), Softirq: s(t.softirq + t.irq), Steal: s(t.steal), Idle: s(t.idle + t.iowait),
	}
}

// own is the CPU time, since some fixed moment, that the bench itself is answerable for: this process,
// everything in the labs' cgroups, and the kernel threads that run softirqs (what they do is the traffic of the labs).
func own(cgroups []string, softirqThreads []int) time.Duration {
	var sum time.Duration
	var self unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &self) == nil {
		sum += time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	for _, dir := range cgroups {
		data, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		if err != nil {
			continue // a lab that is down
		}
		sum += cgroupUsage(string(data))
	}
	for _, pid := range softirqThreads {
		if d, err := processTime(pid); err == nil {
			sum += d
		}
	}
	return sum
}

// cgroupUsage reads usage_usec of a cgroup's cpu.stat.
func cgroupUsage(stat string) time.Duration {
	for _, line := range strings.Split(stat, "\n") {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			if us, err := strconv.ParseInt(value, 10, 64); err == nil {
				return time.Duration(us) * time.Microsecond
			}
		}
	}
	return 0
}

// processTime is the CPU time of all threads of a process: in nanoseconds where the kernel has
// schedstat, else in ticks of a hundredth of a second.
func processTime(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(threads) > 0 {
		var sum time.Duration
		for _, path := range threads {
			data, err := os.ReadFile(path)
			if err != nil {
				continue // a thread that ended
			}
			first, _, _ := strings.Cut(string(data), " ")
			ns, err := strconv.ParseInt(first, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", path, err)
			}
			sum += time.Duration(ns)
		}
		return sum, nil
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseProcessStat(string(data))
}

// parseProcessStat reads utime and stime in the format of /proc/PID/stat, where the name may hold spaces and parentheses.
func parseProcessStat(stat string) (time.Duration, error) {
	end := strings.LastIndex(stat, ")")
	f := strings.Fields(stat[end+1:])
	const utime, stime = 11, 12 // counted from the state, the first field after the name
	if end < 0 || len(f) <= stime {
		return 0, fmt.Errorf("read process time: unexpected format %q", stat)
	}
	u, errU := strconv.ParseInt(f[utime], 10, 64)
	s, errS := strconv.ParseInt(f[stime], 10, 64)
	if errU != nil || errS != nil {
		return 0, fmt.Errorf("read process time: unexpected format %q", stat)
	}
	return time.Duration(u+s) * time.Second / userHZ, nil
}

// softirqThreads are the kernel's ksoftirqd threads. Kernel threads have no executable and pid 2 as parent.
func softirqThreads() []int {
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil
	}
	var pids []int
	for _, path := range paths {
		name, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(name), "ksoftirqd/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// watch reads the noise of a stretch of time.
type watch struct {
	cgroups []string
	threads []int
	stat    map[int]ticks
	own     time.Duration
}

func startWatch(cgroups []string, threads []int) (*watch, error) {
	stat, err := readStat()
	if err != nil {
		return nil, err
	}
	return &watch{cgroups, threads, stat, own(cgroups, threads)}, nil
}

// stop gives the shares of all CPU time since the start that were stolen and that others used.
func (w *watch) stop() (steal, foreign float64, err error) {
	stat, err := readStat()
	if err != nil {
		return 0, 0, err
	}
	steal, foreign = shares(sumDelta(w.stat, stat), own(w.cgroups, w.threads)-w.own)
	return steal, foreign, nil
}

func shares(all ticks, ours time.Duration) (steal, foreign float64) {
	total := float64(all.total()) / userHZ
	if total <= 0 {
		return 0, 0
	}
	busy := float64(all.busy()) / userHZ
	return float64(all.steal) / userHZ / total, max(0, busy-ours.Seconds()) / total
}
