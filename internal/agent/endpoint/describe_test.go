package endpoint

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
)

// An endpoint is described with the path of its packets, and whether the datapath agrees.
func TestDescribePath(t *testing.T) {
	for name, c := range map[string]struct {
		routing   node.Routing
		reason    string
		inTable   bool // through the stack, says the datapath
		path      string
		wantState string
	}{
		"direct":                            {node.RoutingEBPF, "", false, "", agentapi.StateReady},
		"through the stack":                 {node.RoutingEBPF, "port mapping", true, "port mapping", agentapi.StateReady},
		"all through the stack":             {node.RoutingKernel, "", false, "--routing=kernel", agentapi.StateReady},
		"all through the stack, one anyway": {node.RoutingKernel, "port mapping", true, "--routing=kernel", agentapi.StateReady},
		"the datapath goes directly":        {node.RoutingEBPF, "port mapping", false, "port mapping", "through the kernel stack false, want true"},
		"the datapath goes the other path":  {node.RoutingEBPF, "", true, "", "through the kernel stack true, want false"},
	} {
		t.Run(name, func(t *testing.T) {
			all := &Endpoints{Options: Options{Routing: c.routing}}
			e := agentapi.Endpoint{
				HostDevice: "bl1", HostIfIndex: 21, PodMAC: "02:00:00:00:01:01", HostMAC: "02:00:00:00:01:02",
				Addresses: addrs("10.1.1.2", "fd00:1::2"), ThroughStack: c.reason,
			}
			table := map[netip.Addr]fwd.Endpoint{}
			for _, addr := range e.Addresses {
				entry := node.EndpointEntry(e)
				entry.ThroughStack = c.inTable
				table[addr] = entry
			}
			if got := all.describe(e, table); got.ThroughStack != c.path || !strings.Contains(got.State, c.wantState) {
				t.Errorf("path %q, state %q; want %q, %q", got.ThroughStack, got.State, c.path, c.wantState)
			}
		})
	}
}
