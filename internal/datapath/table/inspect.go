package table

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// ProgramInfo is what the kernel reports about one loaded program.
type ProgramInfo struct {
	Name string
	ID   uint32
	Tag  string
	// RunCount and RunTime (ns) stay zero unless kernel.bpf_stats_enabled is set.
	RunCount uint64
	RunTime  uint64
	// Instructions is how many the verifier processed; 0 before Linux 5.16, which does not report it.
	Instructions uint32
}

// MapInfo is what the kernel reports about one map.
type MapInfo struct {
	Name       string
	Type       string
	Entries    int
	MaxEntries uint32
	// Bytes is the memory that the map uses now.
	Bytes uint64
}

// DescribeProgram describes a loaded program.
func DescribeProgram(name string, program *ebpf.Program) (ProgramInfo, error) {
	info, err := program.Info()
	if err != nil {
		return ProgramInfo{}, fmt.Errorf("describe program %s: %w", name, err)
	}
	out := ProgramInfo{Name: name, Tag: info.Tag}
	if id, ok := info.ID(); ok {
		out.ID = uint32(id)
	}
	if n, ok := info.VerifiedInstructions(); ok {
		out.Instructions = n
	}
	stats, err := program.Stats()
	if err != nil {
		return ProgramInfo{}, fmt.Errorf("read statistics of program %s: %w", name, err)
	}
	out.RunCount, out.RunTime = stats.RunCount, uint64(stats.Runtime.Nanoseconds())
	return out, nil
}

// DescribeMap describes a map with its memory.
func DescribeMap(name string, m *ebpf.Map) (MapInfo, error) {
	info, err := m.Info()
	if err != nil {
		return MapInfo{}, fmt.Errorf("describe map %s: %w", name, err)
	}
	out := MapInfo{Name: name, Type: m.Type().String(), MaxEntries: m.MaxEntries()}
	if bytes, ok := info.Memlock(); ok {
		out.Bytes = bytes
	}
	if out.Entries, err = Count(m); err != nil {
		return MapInfo{}, fmt.Errorf("count entries of map %s: %w", name, err)
	}
	return out, nil
}

// SharedMaps are full when many pods use their whole shares: a pod at its limit evicts its own entries
// (bpf/lib/policy/ct_slots.h).
var SharedMaps = []string{bpf.MapConntrack, bpf.MapCtSlots}

// Refuses reports whether a full map rejects new entries. Arrays are always full, and LRU maps evict.
func (m MapInfo) Refuses() bool {
	if slices.Contains(SharedMaps, m.Name) {
		return false
	}
	isHash := m.Type == ebpf.Hash.String() || m.Type == ebpf.LPMTrie.String() || m.Type == ebpf.PerCPUHash.String()
	return isHash && m.MaxEntries > 1 // 1: this configuration does not use it
}
