package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/wait"
	"github.com/beeline-cni/beeline/lab/worker"
)

// quiet is how long the nodes are watched before each turn of a network while the bench does nothing.
const quiet = time.Second / 4

// noise watches the nodes of both ends. A pod does not see which process works: foreign load is what the nodes
// do while the bench is quiet, at the beginning of a turn.
type noise struct {
	// nodes have one worker for each set of CPUs.
	nodes    []*session
	progress *round.Progress
	begin    procstat.Ticks
	foreign  float64
}

func (n *noise) read(ctx context.Context) (sum procstat.Ticks, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, s := range n.nodes {
		reply, err := s.call(ctx, worker.Request{CPU: true})
		if err != nil {
			return sum, fmt.Errorf("read CPU time of a node: %w", err)
		}
		sum = sum.Plus(*reply.CPU)
	}
	return sum, nil
}

func (n *noise) Begin(ctx context.Context) (err error) {
	before, err := n.read(ctx)
	if err != nil {
		return err
	}
	if err := wait.For(ctx, quiet); err != nil {
		return err
	}
	if n.begin, err = n.read(ctx); err != nil {
		return err
	}
	n.progress.Advance(quiet)
	passed := n.begin.Minus(before)
	n.foreign = share(passed.Busy(), passed.Total())
	return nil
}

func (n *noise) End(ctx context.Context) (steal, foreign float64, err error) {
	end, err := n.read(ctx)
	if err != nil {
		return 0, 0, err
	}
	passed := end.Minus(n.begin)
	return share(passed.Steal, passed.Total()), n.foreign, nil
}

func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
