package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// bpfStats makes the kernel count how often and how long each BPF program runs, at some 20 ns for each run.
const bpfStats = "/proc/sys/kernel/bpf_stats_enabled"

// programs measures the run time of BPF programs per packet, for networks with an agent that knows its
// programs, in samples of their own: counting costs time that no other sample should pay.
func (b *bench) programs(ctx context.Context) (err error) {
	if len(b.plan.ProgramCells) == 0 || !slices.ContainsFunc(b.testbeds, hasAgent) {
		return nil
	}
	before, err := os.ReadFile(bpfStats)
	if err != nil {
		b.progress.Note("BPF run time: not on this kernel: %v", err)
		return nil
	}
	if err := os.WriteFile(bpfStats, []byte("1"), 0); err != nil {
		b.progress.Note("BPF run time: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, os.WriteFile(bpfStats, before, 0)) }()
	for _, l := range b.testbeds {
		if !hasAgent(l) {
			continue
		}
		for _, cell := range b.plan.ProgramCells {
			b.progress.Step("BPF run time: %s, %s %s", l.network.Name(), cell.Workload.Info().Name, cell.Path)
			list, err := b.programTimes(ctx, l, cell)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				b.progress.Note("BPF run time of %s, %s %s: %v", l.network.Name(), cell.Workload.Info().Name, cell.Path, err)
			}
			b.run.Programs = append(b.run.Programs, list...)
			b.progress.Advance(cell.Workload.Seconds(b.plan.Length))
		}
	}
	return nil
}

func hasAgent(l *Testbed) bool {
	return network.AgentSocket(l.network, l.lab.Node(0)) != ""
}

// programTimes runs one cell and reads what the programs of both nodes did meanwhile. Packets are those that
// entered and left the client pod: every one of them took the whole path once.
func (b *bench) programTimes(ctx context.Context, l *Testbed, cell Cell) ([]result.Program, error) {
	before, err := readPrograms(ctx, l)
	if err != nil {
		return nil, err
	}
	packets, err := podPackets(l.lab.Place(l.client))
	if err != nil {
		return nil, err
	}
	if s := b.sample(ctx, l, cell, b.plan.Length); s.Error != "" {
		return nil, errors.New(s.Error)
	}
	packetsAfter, err := podPackets(l.lab.Place(l.client))
	if err != nil {
		return nil, err
	}
	after, err := readPrograms(ctx, l)
	if err != nil {
		return nil, err
	}
	var list []result.Program
	for _, name := range sortedNames(after) {
		a, z := before[name], after[name]
		if z.RunCount <= a.RunCount || z.RunTime < a.RunTime {
			continue
		}
		list = append(list, result.Program{
			Network: l.network.Name(), Workload: cell.Workload.Info().Name, Path: cell.Path, Name: name,
			Runs: z.RunCount - a.RunCount, Nanoseconds: z.RunTime - a.RunTime, Packets: packetsAfter - packets,
		})
	}
	return list, nil
}

// readPrograms adds up the programs of all nodes by name.
func readPrograms(ctx context.Context, l *Testbed) (map[string]agentapi.Program, error) {
	sum := map[string]agentapi.Program{}
	for _, n := range l.lab.Nodes() {
		status, err := agentapi.NewClient(network.AgentSocket(l.network, n)).Status(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask agent of %s: %w", n.Name, err)
		}
		for _, p := range status.Programs {
			s := sum[p.Name]
			s.RunCount += p.RunCount
			s.RunTime += p.RunTime
			sum[p.Name] = s
		}
	}
	return sum, nil
}

func sortedNames(m map[string]agentapi.Program) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// podPackets counts the packets that the devices of a namespace, but for lo, have sent and received. A
// packet that the kernel cuts up or puts together later (GSO, GRO) counts once.
func podPackets(place testbed.Place) (packets uint64, err error) {
	err = place.Do(func() error {
		data, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			return err
		}
		packets, err = parseDevices(string(data))
		return err
	})
	return packets, err
}

// parseDevices adds up received and sent packets in the format of /proc/net/dev.
func parseDevices(text string) (uint64, error) {
	var sum uint64
	for _, line := range strings.Split(text, "\n") {
		name, counters, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "lo" {
			continue
		}
		const received, sent = 1, 9
		f := strings.Fields(counters)
		if len(f) <= sent {
			return 0, fmt.Errorf("read packet counters: unexpected line %q", line)
		}
		for _, i := range []int{received, sent} {
			n, err := strconv.ParseUint(f[i], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read packet counters: %w", err)
			}
			sum += n
		}
	}
	return sum, nil
}
