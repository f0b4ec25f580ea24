package network

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
)

// bpfStats makes the kernel count how often and how long each BPF program runs, at some 20 ns for each run.
const bpfStats = "/proc/sys/kernel/bpf_stats_enabled"

// programs measures the run time of BPF programs per packet, for networks with an agent that knows its
// programs, in samples of their own: counting costs time that no other sample should pay.
func (s *Suite) programs(ctx context.Context, b *round.Bench) (err error) {
	if len(s.programCells) == 0 || !slices.ContainsFunc(s.Members, (*suite.Testbed).HasAgent) {
		return nil
	}
	release, err := round.StayOn(round.CPUs()[0])
	if err != nil {
		return err
	}
	defer release()
	before, err := os.ReadFile(bpfStats)
	if err != nil {
		b.Progress.Note("BPF run time: not on this kernel: %v", err)
		return nil
	}
	if err := os.WriteFile(bpfStats, []byte("1"), 0); err != nil {
		b.Progress.Note("BPF run time: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, os.WriteFile(bpfStats, before, 0)) }()
	for _, m := range s.Members {
		if !m.HasAgent() {
			continue
		}
		for _, cell := range s.programCells {
			b.Progress.Step("BPF run time: %s, %s %s", m.Name(), cell.Workload.Info().Name, cell.Path)
			list, err := s.programTimes(ctx, m, cell)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				b.Progress.Note("BPF run time of %s, %s %s: %v", m.Name(), cell.Workload.Info().Name, cell.Path, err)
			}
			b.Result.Programs = append(b.Result.Programs, list...)
			b.Progress.Advance(cell.Workload.Seconds(s.Length))
		}
	}
	return nil
}

// programTimes runs one cell and reads what the programs of both nodes did meanwhile. Packets are those that
// entered and left the client pod: every one of them took the whole path once.
func (s *Suite) programTimes(ctx context.Context, m *suite.Testbed, cell round.Cell) ([]result.Program, error) {
	before, err := readPrograms(ctx, m)
	if err != nil {
		return nil, err
	}
	packets, err := podPackets(m)
	if err != nil {
		return nil, err
	}
	if sample := m.Sample(ctx, cell, s.Length); sample.Error != "" {
		return nil, errors.New(sample.Error)
	}
	packetsAfter, err := podPackets(m)
	if err != nil {
		return nil, err
	}
	after, err := readPrograms(ctx, m)
	if err != nil {
		return nil, err
	}
	var list []result.Program
	for _, name := range slices.Sorted(maps.Keys(after)) {
		a, z := before[name], after[name]
		if z.RunCount <= a.RunCount || z.RunTime < a.RunTime {
			continue
		}
		list = append(list, result.Program{
			Network: m.Name(), Workload: cell.Workload.Info().Name, Path: cell.Path, Name: name,
			Runs: z.RunCount - a.RunCount, Nanoseconds: z.RunTime - a.RunTime, Packets: packetsAfter - packets,
		})
	}
	return list, nil
}

// readPrograms adds up the programs of all nodes by name.
func readPrograms(ctx context.Context, m *suite.Testbed) (map[string]agentapi.Program, error) {
	sum := map[string]agentapi.Program{}
	for i := range m.Lab.Nodes() {
		status, err := m.AgentStatus(ctx, i)
		if err != nil {
			return nil, err
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

// podPackets counts the packets of the client pod's devices.
func podPackets(m *suite.Testbed) (packets uint64, err error) {
	err = m.Client.Do(func() (err error) {
		packets, err = procstat.Packets()
		return err
	})
	return packets, err
}
