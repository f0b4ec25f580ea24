package agent

import (
	"fmt"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// tunnelChoice says how many nodes are behind tunnels and why.
func (a *Agent) tunnelChoice(d node.Desired) agentapi.Choice {
	c := agentapi.Choice{Name: "tunnel", Requested: string(a.config.Tunnel), Selected: string(node.TunnelNone), Reason: "as requested"}
	through := 0
	for _, n := range d.Nodes {
		if strings.Contains(n.Path, agentapi.NodePathVXLAN) {
			through++
		}
	}
	switch {
	case through > 0:
		c.Selected = string(node.TunnelVXLAN)
		c.Reason = fmt.Sprintf("as requested: to all nodes, to UDP port %d", a.config.TunnelPort)
		if a.config.Tunnel == node.TunnelAuto {
			c.Reason = fmt.Sprintf("%d of %d other nodes are not on the uplink's link; to UDP port %d", through, len(d.Nodes), a.config.TunnelPort)
		}
	case d.Tunnel.Missing != nil:
		c.Reason = d.Tunnel.Missing.Error()
	case a.config.Encryption.On():
		c.Reason = "encryption takes its place; the VXLAN device takes what the node's stack sends to it"
	case a.config.Tunnel == node.TunnelVXLAN:
		c.Reason = "there is no other node"
	case a.config.Tunnel == node.TunnelAuto:
		c.Reason = "all other nodes are on the uplink's link"
	}
	return c
}
