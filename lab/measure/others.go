package measure

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// accuser is a Noise that can name what took the CPU time of a turn.
type accuser interface {
	// Others gives the CPU time since Begin by the names of programs that are not the bench's. Those that have ended meanwhile are not in it.
	Others() map[string]time.Duration
}

// process is one that runs: its name and its CPU time so far.
type process struct {
	name string
	took time.Duration
}

// runningProcesses are all that run on this machine but this one, by their process ids.
func runningProcesses() map[int]process {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	all := map[int]process{}
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), "(")
		name, _, _ := strings.Cut(rest, ")")
		if took, err := parseProcessStat(string(stat)); err == nil {
			all[pid] = process{name, took}
		}
	}
	return all
}

// others gives the CPU time that processes took since they were read, by name, without those of the labs and without softirqs.
func others(before map[int]process, cgroups []string, softirqThreads []int) map[string]time.Duration {
	took := map[string]time.Duration{}
	for pid, now := range runningProcesses() {
		since := now.took - before[pid].took // 0 for one that is new
		if since <= 0 || slices.Contains(softirqThreads, pid) || inCgroups(pid, cgroups) {
			continue
		}
		took[now.name] += since
	}
	return took
}

// inCgroups says whether a process is in one of these cgroups, given by their directories, or below.
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
