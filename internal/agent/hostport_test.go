package agent

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/api"
)

// A port that nothing would translate is refused, and not promised.
func TestHostPortOfSCTP(t *testing.T) {
	wants := api.AddRequest{
		Pod:          api.PodRef{Namespace: "default", Name: "a"},
		PortMappings: []api.PortMapping{{HostPort: 5060, ContainerPort: 5060, Protocol: "SCTP"}},
	}
	if err := (&Agent{services: &services{}}).checkPorts(wants); !api.HasCode(err, api.CodeInvalid) {
		t.Errorf("with Services of our own: error is %v", err)
	}
	if err := (&Agent{}).checkPorts(wants); err != nil {
		t.Errorf("where a plugin of the chain has the ports: %v", err)
	}
}
