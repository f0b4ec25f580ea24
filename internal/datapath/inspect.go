package datapath

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
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

// sharedMaps are full where many pods have all that they may have: each pod evicts its own there (bpf/lib/policy/ct_slots.h).
var sharedMaps = []string{bpfMapConntrack, bpfMapCtSlots}

// Refuses tells whether the map refuses what is new when it is full. Others have all their entries always, or push out what is least used.
func (m MapInfo) Refuses() bool {
	if slices.Contains(sharedMaps, m.Name) {
		return false
	}
	isHash := m.Type == ebpf.Hash.String() || m.Type == ebpf.LPMTrie.String() || m.Type == ebpf.PerCPUHash.String()
	return isHash && m.MaxEntries > 1 // 1: this configuration has no use for it
}

// describePrograms describes the loaded programs: in the order a packet meets them, then those at sockets, then those that the agent runs.
func (o *objects) describePrograms() ([]ProgramInfo, error) {
	var all []ProgramInfo
	for _, name := range slices.Concat(programNames[:], socketProgramNames, o.config.agentPrograms()) {
		program := o.programs[name]
		if program == nil {
			continue // this configuration has no use for it
		}
		info, err := program.Info()
		if err != nil {
			return nil, fmt.Errorf("describe program %s: %w", name, err)
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
			return nil, fmt.Errorf("read statistics of program %s: %w", name, err)
		}
		out.RunCount, out.RunTime = stats.RunCount, uint64(stats.Runtime.Nanoseconds())
		all = append(all, out)
	}
	return all, nil
}

// describeMaps describes the tables with their memory.
func (o *objects) describeMaps() ([]MapInfo, error) {
	var all []MapInfo
	for _, name := range slices.Concat(pinnedMaps, privateMaps) {
		m := o.byName[name]
		info, err := m.Info()
		if err != nil {
			return nil, fmt.Errorf("describe map %s: %w", name, err)
		}
		out := MapInfo{Name: name, Type: m.Type().String(), MaxEntries: m.MaxEntries()}
		if bytes, ok := info.Memlock(); ok {
			out.Bytes = bytes
		}
		if out.Entries, err = countEntries(m); err != nil {
			return nil, fmt.Errorf("count entries of map %s: %w", name, err)
		}
		all = append(all, out)
	}
	return all, nil
}
