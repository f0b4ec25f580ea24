package table

import (
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// ProgramInfo is what the kernel says of one loaded program.
type ProgramInfo struct {
	Name string
	ID   uint32
	Tag  string
	// RunCount and RunTime (ns) stay zero unless kernel.bpf_stats_enabled is set.
	RunCount uint64
	RunTime  uint64
	// Instructions is how many the verifier walked; 0 where the kernel does not tell (before 5.16).
	Instructions uint32
}

// MapInfo is what the kernel says of one map.
type MapInfo struct {
	Name       string
	Type       string
	Entries    int
	MaxEntries uint32
	// Bytes is the memory that the map holds now.
	Bytes uint64
}

// SharedMaps are full where many pods have all that they may have: each pod evicts its own there (bpf/lib/policy/ct_slots.h).
var SharedMaps = []string{bpf.MapConntrack, bpf.MapCtSlots}

// Refuses tells whether the map refuses what is new when it is full. Others have all their entries always, or push out what is least used.
func (m MapInfo) Refuses() bool {
	if slices.Contains(SharedMaps, m.Name) {
		return false
	}
	isHash := m.Type == ebpf.Hash.String() || m.Type == ebpf.LPMTrie.String() || m.Type == ebpf.PerCPUHash.String()
	return isHash && m.MaxEntries > 1 // 1: this configuration has no use for it
}
