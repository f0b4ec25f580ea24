package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

// footprints measures what networks cost without traffic: idle agents first, while there are only the bench's own pods,
// then plugin calls, and the agent's memory while all the pods exist.
func (s *Suite) footprints(ctx context.Context, b *round.Bench) error {
	idle, err := s.idle(ctx, b)
	if err != nil {
		return err
	}
	for _, m := range s.Members {
		f := result.Footprint{Network: m.Name()}
		if share, ok := idle[f.Network]; ok {
			f.IdleCPU = &share
		}
		if slices.Contains(s.footprintOf, f.Network) && m.HasPods() && s.Pods > 0 {
			if err := s.crowd(ctx, b, m, &f); err != nil {
				if ctx.Err() != nil {
					return errors.Join(ctx.Err(), err)
				}
				b.Progress.Note("footprint of %s: %v", f.Network, err)
			}
			b.Progress.Advance(addAndDel * time.Duration(s.Pods))
		}
		if f.IdleCPU != nil || len(f.AddMilliseconds) > 0 {
			b.Result.Footprints = append(b.Result.Footprints, f)
		}
	}
	return nil
}

// idle returns the share of one CPU that each agent of the first nodes uses while nothing happens.
func (s *Suite) idle(ctx context.Context, b *round.Bench) (map[string]float64, error) {
	agents, before := map[string]int{}, map[string]time.Duration{}
	for _, m := range s.Members {
		if pid := network.AgentPID(m.Network, m.Lab.Node(0)); pid != 0 {
			agents[m.Name()] = pid
		}
	}
	if len(agents) == 0 || s.Idle == 0 {
		return nil, nil
	}
	b.Progress.Step("watching idle agents for %v", s.Idle)
	for name, pid := range agents {
		used, err := procstat.ProcessTime(pid)
		if err != nil {
			return nil, fmt.Errorf("agent of %s: %w", name, err)
		}
		before[name] = used
	}
	began := time.Now()
	if err := wait.For(ctx, s.Idle); err != nil {
		return nil, err
	}
	elapsed := time.Since(began)
	shares := map[string]float64{}
	for name, pid := range agents {
		used, err := procstat.ProcessTime(pid)
		if err != nil {
			b.Progress.Note("agent of %s ended while it was watched: %v", name, err)
			continue
		}
		shares[name] = (used - before[name]).Seconds() / elapsed.Seconds()
	}
	b.Progress.Advance(s.Idle)
	return shares, nil
}

// crowd adds pods to the first node one after the other, reads the agent's memory, and removes them.
func (s *Suite) crowd(ctx context.Context, b *round.Bench, m *suite.Testbed, f *result.Footprint) (err error) {
	node := m.Lab.Node(0)
	var adds, dels []float64
	timed := plugin.Observe(ctx, func(c plugin.Call) {
		ms := float64(c.Took) / float64(time.Millisecond)
		switch c.Command {
		case "ADD":
			adds = append(adds, ms)
		case "DEL":
			dels = append(dels, ms)
		}
	})
	var pods []*testbed.Pod
	defer func() {
		for _, pod := range pods { // those left by an error; the lab's end would remove them too
			err = errors.Join(err, network.DelPod(context.WithoutCancel(ctx), m.Network, m.Lab, pod))
		}
	}()
	for i := range s.Pods {
		pod, err := network.AddPod(timed, m.Network, m.Lab, node, fmt.Sprintf("crowd%d", i))
		if err != nil {
			return fmt.Errorf("add pod %d: %w", i+1, err)
		}
		pods = append(pods, pod)
		if present := len(pods) + benchPods; present == min(s.Pods+benchPods, memoryPods) {
			f.Pods = present
			if err := agentMemory(ctx, m, f); err != nil {
				return err
			}
		}
	}
	for len(pods) > 0 {
		if err := network.DelPod(timed, m.Network, m.Lab, pods[0]); err != nil {
			return fmt.Errorf("remove pod %s: %w", pods[0].Name, err)
		}
		pods = pods[1:]
	}
	f.AddMilliseconds, f.DelMilliseconds = adds, dels
	return nil
}

// memoryPods is with how many pods on the node the agent's memory is read, if the run adds as many. benchPods exist
// already: the client and the server of the same-node path.
const (
	memoryPods = 100
	benchPods  = 2
)

// agentMemory reads the agent's resident memory and what its BPF maps hold.
func agentMemory(ctx context.Context, m *suite.Testbed, f *result.Footprint) (err error) {
	node := m.Lab.Node(0)
	pid := network.AgentPID(m.Network, node)
	if pid == 0 {
		return nil
	}
	if f.AgentRSSBytes, err = procstat.ProcessMemory(pid); err != nil {
		return err
	}
	f.MapBytes, err = m.MapBytes(ctx)
	return err
}
