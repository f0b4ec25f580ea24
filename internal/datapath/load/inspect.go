package load

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// DescribePrograms describes the loaded programs: those at devices in the order in which a packet meets them, those
// at sockets, then programs that the agent runs.
func (o *Objects) DescribePrograms() ([]table.ProgramInfo, error) {
	var all []table.ProgramInfo
	for _, name := range slices.Concat(bpf.ProgramNames[:], bpf.SocketProgramNames, o.Config.AgentPrograms()) {
		program := o.Programs[name]
		if program == nil {
			continue // this configuration does not need it
		}
		info, err := program.Info()
		if err != nil {
			return nil, fmt.Errorf("describe program %s: %w", name, err)
		}
		out := table.ProgramInfo{Name: name, Tag: info.Tag}
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

// DescribeMaps describes the maps with their memory.
func (o *Objects) DescribeMaps() ([]table.MapInfo, error) {
	var all []table.MapInfo
	for _, name := range slices.Concat(PinnedMaps, PrivateMaps) {
		m := o.ByName[name]
		info, err := m.Info()
		if err != nil {
			return nil, fmt.Errorf("describe map %s: %w", name, err)
		}
		out := table.MapInfo{Name: name, Type: m.Type().String(), MaxEntries: m.MaxEntries()}
		if bytes, ok := info.Memlock(); ok {
			out.Bytes = bytes
		}
		if out.Entries, err = table.Count(m); err != nil {
			return nil, fmt.Errorf("count entries of map %s: %w", name, err)
		}
		all = append(all, out)
	}
	return all, nil
}
