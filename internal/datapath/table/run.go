package table

import (
	"github.com/cilium/ebpf"
)

// RunAgentProgram runs one of config.Datapath.AgentPrograms. A nil program, which the configuration does not need,
// does nothing.
func RunAgentProgram(program *ebpf.Program) error {
	if program == nil {
		return nil
	}
	_, err := program.Run(&ebpf.RunOptions{})
	return err
}
