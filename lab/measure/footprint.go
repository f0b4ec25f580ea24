package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// footprints measures what networks cost without traffic: idle agents first, while there are only the
// bench's own pods, then plugin calls, and the agent's memory while all the pods are there.
func (b *bench) footprints(ctx context.Context) error {
	idle, err := b.idle(ctx)
	if err != nil {
		return err
	}
	for _, l := range b.testbeds {
		f := result.Footprint{Network: l.network.Name()}
		if share, ok := idle[f.Network]; ok {
			f.IdleCPU = &share
		}
		if slices.Contains(b.plan.FootprintOf, f.Network) && l.hasPods() && b.plan.Pods > 0 {
			if err := b.crowd(ctx, l, &f); err != nil {
				if ctx.Err() != nil {
					return errors.Join(ctx.Err(), err)
				}
				b.progress.Note("footprint of %s: %v", f.Network, err)
			}
			b.progress.Advance(addAndDel * time.Duration(b.plan.Pods))
		}
		if f.IdleCPU != nil || len(f.AddMilliseconds) > 0 {
			b.run.Footprints = append(b.run.Footprints, f)
		}
	}
	return nil
}

// idle gives the share of one CPU that each agent of the first nodes uses while nothing happens.
func (b *bench) idle(ctx context.Context) (map[string]float64, error) {
	agents := map[string]int{}
	for _, l := range b.testbeds {
		if pid := l.network.AgentPID(l.lab.Node(0)); pid != 0 {
			agents[l.network.Name()] = pid
		}
	}
	if len(agents) == 0 || b.plan.Idle == 0 {
		return nil, nil
	}
	b.progress.Step("watching idle agents for %v", b.plan.Idle)
	before := map[string]time.Duration{}
	for name, pid := range agents {
		used, err := processTime(pid)
		if err != nil {
			return nil, fmt.Errorf("read CPU time of agent of %s: %w", name, err)
		}
		before[name] = used
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(b.plan.Idle):
	}
	elapsed := time.Since(began)
	shares := map[string]float64{}
	for name, pid := range agents {
		used, err := processTime(pid)
		if err != nil {
			b.progress.Note("agent of %s ended while it was watched: %v", name, err)
			continue
		}
		shares[name] = (used - before[name]).Seconds() / elapsed.Seconds()
	}
	b.progress.Advance(b.plan.Idle)
	return shares, nil
}

// crowd adds pods to the first node one after the other, reads the agent's memory, and removes them.
func (b *bench) crowd(ctx context.Context, l *Testbed, f *result.Footprint) (err error) {
	node := l.lab.Node(0)
	var adds, dels []float64
	timed := network.ObservePlugins(ctx, func(c network.PluginCall) {
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
			err = errors.Join(err, l.network.DelPod(context.WithoutCancel(ctx), l.lab, pod))
		}
	}()
	for i := range b.plan.Pods {
		b.progress.Status("footprint: %s, adding pod %d of %d", f.Network, i+1, b.plan.Pods)
		pod, err := l.network.AddPod(timed, l.lab, node, fmt.Sprintf("crowd%d", i))
		if err != nil {
			return fmt.Errorf("add pod %d: %w", i+1, err)
		}
		pods = append(pods, pod)
		if present := len(pods) + benchPods; present == min(b.plan.Pods+benchPods, memoryPods) {
			f.Pods = present
			if err := agentMemory(ctx, l, f); err != nil {
				return err
			}
		}
	}
	for len(pods) > 0 {
		b.progress.Status("footprint: %s, removing pod %d of %d", f.Network, len(pods), b.plan.Pods)
		if err := l.network.DelPod(timed, l.lab, pods[0]); err != nil {
			return fmt.Errorf("remove pod %s: %w", pods[0].Name, err)
		}
		pods = pods[1:]
	}
	f.AddMilliseconds, f.DelMilliseconds = adds, dels
	return nil
}

// memoryPods is with how many pods on the node the agent's memory is read, where the plan adds as many;
// benchPods are there already: the client and the server of the same-node path.
const (
	memoryPods = 100
	benchPods  = 2
)

// agentMemory reads the agent's resident memory and what its BPF maps hold.
func agentMemory(ctx context.Context, l *Testbed, f *result.Footprint) error {
	node := l.lab.Node(0)
	pid := l.network.AgentPID(node)
	if pid == 0 {
		return nil
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return fmt.Errorf("read memory of agent: %w", err)
	}
	if f.AgentRSSBytes, err = parseRSS(string(status)); err != nil {
		return err
	}
	socket := network.AgentSocket(l.network, node)
	if socket == "" {
		return nil
	}
	s, err := agentapi.NewClient(socket).Status(ctx)
	if err != nil {
		return fmt.Errorf("ask agent for its maps: %w", err)
	}
	f.MapBytes = 0
	for _, m := range s.Maps {
		f.MapBytes += m.Bytes
	}
	return nil
}

// parseRSS reads VmRSS, in bytes, in the format of /proc/PID/status, whose kB are 1024 bytes.
func parseRSS(status string) (uint64, error) {
	for _, line := range strings.Split(status, "\n") {
		value, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read resident memory: %w", err)
		}
		return kb * 1024, nil
	}
	return 0, errors.New("read resident memory: no VmRSS")
}
