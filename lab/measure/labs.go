package measure

import (
	"context"
	"time"

	"github.com/beeline-cni/beeline/lab/procstat"
)

// CPUs are those that this process may use.
func CPUs() []int { return allowed() }

// StayOn keeps every thread of this process on one CPU until the returned function is called.
func StayOn(cpu int) (restore func(), err error) { return stayOn(cpu) }

// WatchLabs watches this machine for what is not the bench's. Its own is what happens in the cgroups of the labs, in this
// process and in the threads of softirqs, and what own gives: the CPU time, since some fixed moment, of others that work for it.
func WatchLabs(cgroups []string, own func() time.Duration) Noise {
	return &labsNoise{cgroups: cgroups, threads: softirqThreads(), own: own}
}

type labsNoise struct {
	cgroups []string
	threads []int
	own     func() time.Duration
	watch   *watch
	before  time.Duration
}

func (n *labsNoise) Begin(context.Context) (err error) {
	n.before = n.own()
	n.watch, err = startWatch(n.cgroups, n.threads)
	return err
}

func (n *labsNoise) Others() map[string]time.Duration { return n.watch.others() }

func (n *labsNoise) End(context.Context) (steal, foreign float64, err error) {
	stat, err := procstat.Read()
	if err != nil {
		return 0, 0, err
	}
	ours := own(n.cgroups, n.threads) - n.watch.own + n.own() - n.before
	steal, foreign = shares(procstat.Delta(n.watch.stat, stat), ours)
	return steal, foreign, nil
}
