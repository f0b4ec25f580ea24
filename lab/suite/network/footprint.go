package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/policies"
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
			b.Progress.Advance(s.crowdTakes(m.Network))
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

// probedPods is how many pods with probed addresses are added, of as many as there are without, or fewer.
const probedPods = 10

// probed is how many pods with probed addresses a network gets.
func (s *Suite) probed(n network.Network) int {
	if !network.HasPools(n) {
		return 0
	}
	return min(s.Pods, probedPods)
}

// addAndDel is what adding and removing a pod takes, about, and probe what probing its address adds.
const (
	addAndDel = 200 * time.Millisecond
	probe     = 300 * time.Millisecond
)

// crowdTakes is what crowd takes, about.
func (s *Suite) crowdTakes(n network.Network) time.Duration {
	return time.Duration(s.Pods)*addAndDel + time.Duration(s.probed(n))*(addAndDel+probe)
}

// crowd adds pods to the first node one after the other, reads the agent's memory, and removes them. Then it adds and
// removes pods with probed addresses, if the network has such.
func (s *Suite) crowd(ctx context.Context, b *round.Bench, m *suite.Testbed, f *result.Footprint) (err error) {
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
			err = errors.Join(err, m.DelPod(context.WithoutCancel(ctx), pod))
		}
	}()
	add := func(name string, annotations map[string]string) error {
		pod, err := m.AddPod(timed, 0, policies.Pod{Namespace: policies.Default, Name: name, Annotations: annotations})
		if err != nil {
			return fmt.Errorf("add pod %s: %w", name, err)
		}
		pods = append(pods, pod)
		return nil
	}
	del := func() error {
		if err := m.DelPod(timed, pods[0]); err != nil {
			return fmt.Errorf("remove pod %s: %w", pods[0].Name, err)
		}
		pods = pods[1:]
		return nil
	}
	for i := range s.Pods {
		if err := add(fmt.Sprintf("crowd%d", i), nil); err != nil {
			return err
		}
		if present := len(pods) + benchPods; present == min(s.Pods+benchPods, memoryPods) {
			f.Pods = present
			if err := agentMemory(ctx, m, f); err != nil {
				return err
			}
		}
	}
	for len(pods) > 0 {
		if err := del(); err != nil {
			return err
		}
	}
	f.AddMilliseconds, f.DelMilliseconds, adds = adds, dels, nil
	for i := range s.probed(m.Network) {
		if err := add(fmt.Sprintf("probed%d", i), network.Probed); err != nil {
			return err
		}
		if err := del(); err != nil {
			return err
		}
	}
	f.ProbedAddMilliseconds = adds
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
