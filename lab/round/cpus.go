package round

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/result"
)

// CPUs are those that this process may use, as it found them: not every container has CPU 0.
var CPUs = sync.OnceValue(func() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
		return []int{0}
	}
	var list []int
	for cpu := 0; len(list) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
})

// EndCPUs returns the CPUs of the two ends of a sample.
func EndCPUs(p result.Placement) (client, server int, err error) { return endCPUs(p, CPUs()) }

// endCPUs chooses from CPUs: servers always run on the measured one (they are started once), clients beside them or,
// spread, on another one. The first CPU, where most machines handle their interrupts and this program waits, is used
// only where there are just two.
func endCPUs(p result.Placement, all []int) (client, server int, err error) {
	server = all[min(1, len(all)-1)]
	switch {
	case p == result.OneCore:
		return server, server, nil
	case p != result.Spread:
		return 0, 0, fmt.Errorf("no placement %q; there are: %s, %s", p, result.OneCore, result.Spread)
	case len(all) < 2:
		return 0, 0, fmt.Errorf("placement %s: there is one CPU", p)
	case len(all) == 2:
		return all[0], server, nil
	}
	return all[2], server, nil
}

// StayOn keeps every thread of this process on one CPU until the returned function is called. A thread inherits it from
// its creator.
func StayOn(cpu int) (restore func(), err error) {
	var only, before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read own CPUs: %w", err)
	}
	if before.Count() < 2 {
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
