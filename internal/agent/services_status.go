package agent

import (
	"fmt"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// translation describes what this node translates now.
func (a *Agent) translation() agentapi.Translation {
	removed := a.expiry.Status()
	t := agentapi.Translation{Expired: removed.Expired, Destroyed: removed.Destroyed}
	if a.services != nil {
		o := a.services.Status()
		t.Ports, t.Frontends = o.Ports, o.Frontends
	}
	for _, c := range a.datapath.NAT.Counts() {
		t.Connections = append(t.Connections, agentapi.ConnectionCount{
			Kind: string(c.Kind), Protocol: cluster.Protocol(c.Protocol).String(), State: string(c.State), Count: c.Entries,
		})
	}
	return t
}

// serviceChoices are the active settings of Services, with the reason for each.
func (a *Agent) serviceChoices(d node.Desired) (all []agentapi.Choice) {
	if a.config.Masquerade || a.services != nil {
		all = append(all, agentapi.Choice{
			Name: "nat ports", Requested: a.config.NATPorts.String(), Selected: a.config.NATPorts.String(), Reason: "the node's own sockets get no ephemeral port in this range",
		})
	}
	if a.services == nil {
		return all
	}
	mode := agentapi.Choice{Name: "nodeport mode", Requested: string(a.config.NodePortMode), Selected: string(a.config.NodePortMode), Reason: "connections to backends on other nodes get this node's address"}
	if a.config.NodePortMode == lb.NodePortDSR {
		mode.Reason = "backends on this link reply to clients directly; Services with affinity, and other backends, reply through this node"
	}
	addresses := agentapi.Choice{Name: "nodeport addresses", Requested: "auto", Selected: join(d.Services.NodePortAddresses), Reason: "those of the Node object that a local device has"}
	if text, err := a.config.NodePortAddresses.MarshalText(); err == nil && len(text) > 0 {
		addresses.Requested, addresses.Reason = string(text), "those of all local devices in these networks"
	}
	if addresses.Selected == "" {
		addresses.Selected = "none"
	}
	maglev := agentapi.Choice{Name: "maglev table size", Requested: "auto", Selected: "auto", Reason: "at least 100 entries for each backend"}
	if a.config.MaglevTableSize != 0 {
		maglev.Requested = fmt.Sprint(int(a.config.MaglevTableSize))
		maglev.Selected, maglev.Reason = maglev.Requested, "as requested"
	}
	return append(all, mode, a.programs.Acceleration(string(a.config.NodePortAcceleration)), addresses, maglev)
}

// join writes values separated by blanks.
func join[T fmt.Stringer](all []T) string {
	var s []string
	for _, v := range all {
		s = append(s, v.String())
	}
	return strings.Join(s, " ")
}
