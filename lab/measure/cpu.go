package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/procstat"
	"golang.org/x/sys/unix"
)

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
	return time.Duration(u+s) * time.Second / procstat.HZ, nil
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
	stat    map[int]procstat.Ticks
	own     time.Duration
	running map[int]process
}

func startWatch(cgroups []string, threads []int) (*watch, error) {
	stat, err := procstat.Read()
	if err != nil {
		return nil, err
	}
	return &watch{cgroups, threads, stat, own(cgroups, threads), runningProcesses()}, nil
}

// stop gives the shares of all CPU time since the start that were stolen and that others used.
func (w *watch) stop() (steal, foreign float64, err error) {
	stat, err := procstat.Read()
	if err != nil {
		return 0, 0, err
	}
	steal, foreign = shares(procstat.Delta(w.stat, stat), own(w.cgroups, w.threads)-w.own)
	return steal, foreign, nil
}

// others names what else ran since the start.
func (w *watch) others() map[string]time.Duration { return others(w.running, w.cgroups, w.threads) }

func shares(all procstat.Ticks, ours time.Duration) (steal, foreign float64) {
	total := float64(all.Total()) / procstat.HZ
	if total <= 0 {
		return 0, 0
	}
	busy := float64(all.Busy()) / procstat.HZ
	return float64(all.Steal) / procstat.HZ / total, max(0, busy-ours.Seconds()) / total
}
