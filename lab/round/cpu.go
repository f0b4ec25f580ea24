package round

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/procstat"
)

// Noise watches, during a turn of a network, the machines under test for load that is not the bench's.
type Noise interface {
	// Begin is called before the samples of a turn. The samples wait until it returns.
	Begin(ctx context.Context) error
	// End returns the shares (0…1) of the CPU time of all CPUs that the hypervisor and others took.
	End(ctx context.Context) (steal, foreign float64, err error)
}

// blamer is a Noise that can name what took the CPU time of a turn.
type blamer interface {
	// Others returns the CPU time since Begin by the names of programs that are not the bench's and still run.
	Others() map[string]time.Duration
}

// machineNoise watches this machine. The bench's own load is that of the labs' cgroups, of this process and of the
// kernel's softirq threads (what they do is the traffic of the labs), and what own returns, if it is set.
type machineNoise struct {
	cgroups []string
	threads []int
	own     func() time.Duration

	stat    map[int]procstat.Ticks
	before  time.Duration
	running map[int]procstat.Process
}

// MachineNoise watches this machine for load from outside the labs with these cgroups. own is the CPU time, since some
// fixed moment, of others that work for the bench; nil: there are none.
func MachineNoise(cgroups []string, own func() time.Duration) Noise {
	if own == nil {
		own = func() time.Duration { return 0 }
	}
	return &machineNoise{cgroups: cgroups, threads: softirqThreads(), own: own}
}

func (n *machineNoise) Begin(context.Context) (err error) {
	if n.stat, err = procstat.Read(); err != nil {
		return err
	}
	n.before, n.running = ownTime(n.cgroups, n.threads)+n.own(), procstat.Processes()
	return nil
}

func (n *machineNoise) End(context.Context) (steal, foreign float64, err error) {
	stat, err := procstat.Read()
	if err != nil {
		return 0, 0, err
	}
	steal, foreign = shares(procstat.Delta(n.stat, stat), ownTime(n.cgroups, n.threads)+n.own()-n.before)
	return steal, foreign, nil
}

func (n *machineNoise) Others() map[string]time.Duration {
	took := map[string]time.Duration{}
	for pid, now := range procstat.Processes() {
		since := now.Time - n.running[pid].Time // 0 before for a new process
		if since <= 0 || pid == os.Getpid() || slices.Contains(n.threads, pid) || inCgroups(pid, n.cgroups) {
			continue
		}
		took[now.Name] += since
	}
	return took
}

func shares(all procstat.Ticks, ours time.Duration) (steal, foreign float64) {
	total := float64(all.Total()) / procstat.HZ
	if total <= 0 {
		return 0, 0
	}
	busy := float64(all.Busy()) / procstat.HZ
	return float64(all.Steal) / procstat.HZ / total, max(0, busy-ours.Seconds()) / total
}

// ownTime is the CPU time, since some fixed moment, of this process, of everything in the cgroups and of the threads.
func ownTime(cgroups []string, threads []int) time.Duration {
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
	for _, pid := range threads {
		if d, err := procstat.ProcessTime(pid); err == nil {
			sum += d
		}
	}
	return sum
}

// cgroupUsage reads usage_usec of a cgroup's cpu.stat.
func cgroupUsage(stat string) time.Duration {
	for line := range strings.Lines(stat) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			if us, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
				return time.Duration(us) * time.Microsecond
			}
		}
	}
	return 0
}

// softirqThreads are the kernel's ksoftirqd threads.
func softirqThreads() []int {
	var pids []int
	for pid, p := range procstat.Processes() {
		if strings.HasPrefix(p.Name, "ksoftirqd/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// inCgroups reports whether a process is in one of these cgroups, given by their directories, or below.
func inCgroups(pid int, cgroups []string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	_, path, _ := strings.Cut(string(data), "0::") // the line of cgroup v2
	path, _, _ = strings.Cut(path, "\n")
	return path != "" && path != "/" && slices.ContainsFunc(cgroups, func(dir string) bool {
		return strings.HasSuffix(dir, path) || strings.Contains(path+"/", "/"+filepath.Base(dir)+"/")
	})
}

// mostOf names the programs that took most, most first.
func mostOf(took map[string]time.Duration, most int) string {
	names := slices.SortedFunc(maps.Keys(took), func(a, b string) int {
		if took[a] != took[b] {
			return int(took[b] - took[a])
		}
		return strings.Compare(a, b)
	})
	return strings.Join(names[:min(most, len(names))], ", ")
}
