package measure

import (
	"context"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/machine"
	"github.com/beeline-cni/beeline/lab/network"
)

// describe records the machine. What cannot be read is left out.
func (b *bench) describe(ctx context.Context) {
	e := machine.Describe(ctx)
	e.CPUs = numCPU()
	first := b.testbeds[0]
	e.CongestionControl = first.lab.CongestionControl
	for _, sysctl := range machine.Sysctls {
		if v, err := first.lab.Place(first.client).ReadSysctl(sysctl); err == nil {
			e.Sysctls[strings.ReplaceAll(sysctl, "/", ".")] = v
		}
	}
	for _, l := range b.testbeds {
		if socket := network.AgentSocket(l.network, l.lab.Node(0)); socket != "" {
			if s, err := agentapi.NewClient(socket).Status(ctx); err == nil {
				for _, f := range s.Features {
					e.Features[f.Name] = f.Present
				}
			}
		}
	}
	b.run.Environment = e
}
