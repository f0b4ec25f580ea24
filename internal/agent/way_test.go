package agent

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath"
)

// A pod that goes through the stack does so with each of its addresses, whatever the reason, and no other pod does.
func TestDesireThroughStack(t *testing.T) {
	f := twoNodes()
	other := f.endpoints[0]
	other.HostDevice, other.HostIfIndex, other.Addresses = "bl2", 22, addrs("10.1.1.3", "fd00:1::3")
	other.ThroughStack = "port mapping"
	f.endpoints = append(f.endpoints, other)
	d := desire(f)
	for a, want := range map[string]bool{"10.1.1.2": false, "fd00:1::2": false, "10.1.1.3": true, "fd00:1::3": true} {
		if got, ok := d.endpoints[addr(a)]; !ok || got.ThroughStack != want {
			t.Errorf("%s: %+v, want through the stack: %t", a, got, want)
		}
	}
}

// What the agent tells of an endpoint: the way that its packets take, and whether the datapath agrees.
func TestDescribeTellsWay(t *testing.T) {
	for name, c := range map[string]struct {
		routing   Routing
		reason    string
		inTable   bool // through the stack, says the datapath
		way       string
		wantState string
	}{
		"direct":                            {RoutingEBPF, "", false, "", agentapi.StateReady},
		"through the stack":                 {RoutingEBPF, "port mapping", true, "port mapping", agentapi.StateReady},
		"all through the stack":             {RoutingKernel, "", false, "--routing=kernel", agentapi.StateReady},
		"all through the stack, one anyway": {RoutingKernel, "port mapping", true, "--routing=kernel", agentapi.StateReady},
		"the datapath goes directly":        {RoutingEBPF, "port mapping", false, "port mapping", "through the host's stack false, want true"},
		"the datapath goes the other way":   {RoutingEBPF, "", true, "", "through the host's stack true, want false"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Agent{ways: ways{routing: c.routing}}
			e := twoNodes().endpoints[0]
			e.ThroughStack = c.reason
			table := map[netip.Addr]datapath.Endpoint{}
			for _, addr := range e.Addresses {
				entry := endpointEntry(e)
				entry.ThroughStack = c.inTable
				table[addr] = entry
			}
			if got := a.describe(e, table); got.ThroughStack != c.way || !strings.Contains(got.State, c.wantState) {
				t.Errorf("way %q, state %q; want %q, %q", got.ThroughStack, got.State, c.way, c.wantState)
			}
		})
	}
}
