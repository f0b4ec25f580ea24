package table

import (
	"github.com/cilium/ebpf"
)

// RunAgentProgram runs one of agentPrograms; nil, where the configuration has no use for it, has nothing to do.
func RunAgentProgram(program *ebpf.Program) error {
	if program == nil {
		return nil
	}
	_, err := program.Run(&ebpf.RunOptions{})
	return err
}
