package procstat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// ProcessTime is the CPU time of all threads of a process: in nanoseconds where the kernel has schedstat, else in
// ticks.
func ProcessTime(pid int) (time.Duration, error) {
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
	}
	var sum time.Duration
	counted := false
	for _, thread := range threads {
		if s, err := thread.Schedstat(); err == nil { // else the thread has ended, or the kernel has none
			sum += time.Duration(s.RunningNanoseconds)
			counted = true
		}
	}
	if counted {
		return sum, nil
	}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
	}
	return statTime(stat), nil
}

func statTime(s procfs.ProcStat) time.Duration {
	return time.Duration(s.UTime+s.STime) * time.Second / HZ
}

// ProcessMemory is the resident memory of a process, in bytes.
func ProcessMemory(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	status, err := p.NewStatus()
	if err == nil && status.VmRSS == 0 {
		err = errors.New("no VmRSS: a kernel thread or one that ended")
	}
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	return status.VmRSS, nil
}

// Process is one that runs: its name and its CPU time since it started.
type Process struct {
	Name string
	Time time.Duration
}

// Processes are all that run on this machine, by their process ids.
func Processes() map[int]Process {
	list, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	all := map[int]Process{}
	for _, p := range list {
		if stat, err := p.Stat(); err == nil { // else it has ended
			all[p.PID] = Process{stat.Comm, statTime(stat)}
		}
	}
	return all
}

// Packets counts the packets that all devices but lo have received and sent, in the network namespace of the calling
// thread. A packet that the kernel splits or merges later (GSO, GRO) counts once.
func Packets() (uint64, error) {
	fs, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return 0, fmt.Errorf("read packet counters: %w", err)
	}
	return packets(fs)
}

func packets(fs procfs.FS) (sum uint64, err error) {
	devices, err := fs.NetDev()
	if err != nil {
		return 0, fmt.Errorf("read packet counters: %w", err)
	}
	for name, d := range devices {
		if name != "lo" {
			sum += d.RxPackets + d.TxPackets
		}
	}
	return sum, nil
}

// KernelWorkers is the CPU time, since some fixed moment, of the kernel's workers: threads that do other parts' work, on
// any CPU.
func KernelWorkers() (sum time.Duration) {
	for pid, p := range Processes() {
		if strings.HasPrefix(p.Name, "kworker/") {
			if took, err := ProcessTime(pid); err == nil { // else it has ended
				sum += took
			}
		}
	}
	return sum
}
