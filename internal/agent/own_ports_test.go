package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// No pod gets a port of the agent's probes or of tunnels.
func TestOwnPorts(t *testing.T) {
	a := &Agent{config: Defaults()}
	a.config.NodeName = "n1"
	for mapping, flag := range map[agentapi.PortMapping]string{
		{HostPort: 9965, ContainerPort: 80, Protocol: "tcp"}:  "--metrics-address",
		{HostPort: 10256, ContainerPort: 80, Protocol: "tcp"}: "--healthz-address",
		{HostPort: 4789, ContainerPort: 80, Protocol: "udp"}:  "--tunnel-port",
		{HostPort: 9965, ContainerPort: 80, Protocol: "udp"}:  "",
		{HostPort: 4789, ContainerPort: 80, Protocol: "tcp"}:  "",
		{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}:  "",
	} {
		err := a.checkPorts(agentapi.AddRequest{PortMappings: []agentapi.PortMapping{mapping}})
		var coded *agentapi.Error
		if flag == "" && err != nil || flag != "" && (!errors.As(err, &coded) || coded.Code != agentapi.CodePortTaken || !strings.Contains(err.Error(), flag)) {
			t.Errorf("%+v: %v, want one that names %q", mapping, err, flag)
		}
	}
}
