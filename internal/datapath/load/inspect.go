package load

import (
	"slices"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// DescribePrograms describes the loaded programs: those at devices in the order in which a packet meets them, those
// at sockets, then programs that the agent runs.
func (o *Objects) DescribePrograms() ([]table.ProgramInfo, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	var all []table.ProgramInfo
	for _, name := range slices.Concat(bpf.ProgramNames[:], bpf.SocketProgramNames, o.Config.AgentPrograms()) {
		program := o.Programs[name]
		if program == nil {
			continue // this configuration does not need it, or no device yet
		}
		info, err := table.DescribeProgram(name, program)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// DescribeMaps describes the maps with their memory.
func (o *Objects) DescribeMaps() ([]table.MapInfo, error) {
	var all []table.MapInfo
	for _, name := range slices.Concat(PinnedMaps, PrivateMaps) {
		info, err := table.DescribeMap(name, o.ByName[name])
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}
