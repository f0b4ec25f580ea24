package agent

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// applyTunnelSources writes this node's tunnel endpoints to the datapath.
func (a *Agent) applyTunnelSources(sources []netip.Addr) error {
	var ipv4, ipv6 netip.Addr
	for _, s := range sources {
		if s.Is4() {
			ipv4 = s
		} else {
			ipv6 = s
		}
	}
	return a.datapath.Tunnel.SetSources(ipv4, ipv6)
}

// applyTunnelRules routes packets from pods to tunnelled nodes through the tunnel also where the kernel stack
// forwards them.
func (a *Agent) applyTunnelRules(want node.Desired) error {
	var sources []netip.Prefix
	if want.TunnelRules {
		sources = want.PodCIDRs
	}
	_, err := route.SyncTunnelRules(sources)
	return err
}

// tunnelChoice says how many nodes are behind tunnels and why.
func (a *Agent) tunnelChoice() agentapi.Choice {
	c := agentapi.Choice{Name: "tunnel", Requested: string(a.config.Tunnel), Selected: string(node.TunnelNone), Reason: "as requested"}
	through := 0
	for _, n := range a.current.Nodes {
		if strings.Contains(n.Path, agentapi.NodePathVXLAN) {
			through++
		}
	}
	switch {
	case through > 0:
		c.Selected = string(node.TunnelVXLAN)
		c.Reason = fmt.Sprintf("as requested: to all nodes, to UDP port %d", a.config.TunnelPort)
		if a.config.Tunnel == node.TunnelAuto {
			c.Reason = fmt.Sprintf("%d of %d other nodes are not on the uplink's link; to UDP port %d", through, len(a.current.Nodes), a.config.TunnelPort)
		}
	case a.current.Tunnel.Missing != nil:
		c.Reason = a.current.Tunnel.Missing.Error()
	case a.config.Tunnel == node.TunnelVXLAN:
		c.Reason = "there is no other node"
	case a.config.Tunnel == node.TunnelAuto:
		c.Reason = "all other nodes are on the uplink's link"
	}
	return c
}
