package measure

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"github.com/beeline-cni/beeline/lab/result"
	"golang.org/x/sys/unix"
)

// cpus says where the two ends of a sample run, on a machine with so many CPUs: servers always on the
// measured CPU (they are started once), clients beside them or, spread, on another one. CPU 0, where most
// machines handle their interrupts and this program waits, is used only where there are just two.
func cpus(p result.Placement, count int) (client, server int, err error) {
	server = min(1, count-1)
	switch {
	case p == result.OneCore:
		return server, server, nil
	case count < 2:
		return 0, 0, fmt.Errorf("placement %s: the machine has one CPU", p)
	case count == 2:
		return 0, server, nil
	}
	return 2, server, nil
}

// stayOn keeps every thread of this process on one CPU until the returned function is called. Threads of later
// birth inherit it from their creators.
func stayOn(cpu int) (restore func(), err error) {
	var only, before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read own CPUs: %w", err)
	}
	if runtime.NumCPU() < 2 {
		return func() {}, nil
	}
	only.Set(cpu)
	if err := setAll(&only); err != nil {
		return nil, err
	}
	return func() { _ = setAll(&before) }, nil // at worst the process stays where it is
}

func setAll(set *unix.CPUSet) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("pin thread %d: %w", tid, err)
		}
	}
	return nil
}
