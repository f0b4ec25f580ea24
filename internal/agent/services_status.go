package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
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
func (a *Agent) serviceChoices() (all []agentapi.Choice) {
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
	addresses := agentapi.Choice{Name: "nodeport addresses", Requested: "auto", Selected: join(a.current.Services.NodePortAddresses), Reason: "those of the Node object that a local device has"}
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
	return append(all, mode, a.accelerationChoice(), addresses, maglev)
}

// acceleration is where an uplink forwards, and why not where it was requested.
type acceleration struct {
	attach.Accelerated
	err error
}

// accelerationChoice says where each uplink forwards external packets.
func (a *Agent) accelerationChoice() agentapi.Choice {
	c := agentapi.Choice{Name: "nodeport acceleration", Requested: string(a.config.NodePortAcceleration), Selected: "none", Reason: "there is no uplink"}
	var chosen, reasons []string
	for _, u := range a.uplinks {
		at, known := a.accelerated[u.Name]
		if !known {
			continue
		}
		if !slices.Contains(chosen, string(at.Hook)) {
			chosen = append(chosen, string(at.Hook))
		}
		reasons = append(reasons, fmt.Sprintf("%s: %s, because %s", u.Name, at.Hook, at.Reason))
	}
	if len(chosen) > 0 {
		c.Selected, c.Reason = strings.Join(chosen, ", "), strings.Join(reasons, "; ")
	}
	return c
}

// join writes values separated by blanks.
func join[T fmt.Stringer](all []T) string {
	var s []string
	for _, v := range all {
		s = append(s, v.String())
	}
	return strings.Join(s, " ")
}
