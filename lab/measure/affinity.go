package measure

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/beeline-cni/beeline/lab/result"
	"golang.org/x/sys/unix"
)

// allowed are the CPUs that this process may use, as it found them: not every container has CPU 0.
var allowed = sync.OnceValue(func() []int {
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

// cpus says on which of the CPUs there are the two ends of a sample run: servers always on the measured one
// (they are started once), clients beside them or, spread, on another one. The first CPU, where most
// machines handle their interrupts and this program waits, is used only where there are just two.
func cpus(p result.Placement, there []int) (client, server int, err error) {
	server = there[min(1, len(there)-1)]
	switch {
	case p == result.OneCore:
		return server, server, nil
	case len(there) < 2:
		return 0, 0, fmt.Errorf("placement %s: there is one CPU", p)
	case len(there) == 2:
		return there[0], server, nil
	}
	return there[2], server, nil
}

// stayOn keeps every thread of this process on one CPU until the returned function is called. Threads of later
// birth inherit it from their creators.
func stayOn(cpu int) (restore func(), err error) {
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
