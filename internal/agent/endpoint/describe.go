package endpoint

import (
	"fmt"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
)

// describe gives an endpoint in the form of the API: with its state and its path, which the routing of the node may
// decide.
func (e *Endpoints) describe(p agentapi.Endpoint, table map[netip.Addr]fwd.Endpoint) agentapi.Endpoint {
	p.State = endpointState(p, table)
	if e.Routing == node.RoutingKernel {
		p.ThroughStack = "--routing=kernel"
	}
	return p
}

// endpointState compares an endpoint with the datapath's table.
func endpointState(p agentapi.Endpoint, table map[netip.Addr]fwd.Endpoint) string {
	for _, addr := range p.Addresses {
		if got, ok := table[addr]; !ok {
			return fmt.Sprintf("the datapath does not have address %s", addr)
		} else if want := node.EndpointEntry(p); got.ThroughStack != want.ThroughStack {
			return fmt.Sprintf("the datapath has another path for address %s: through the kernel stack %t, want %t", addr, got.ThroughStack, want.ThroughStack)
		} else if got != want {
			return fmt.Sprintf("the datapath has another device for address %s", addr)
		}
	}
	return agentapi.StateReady
}
