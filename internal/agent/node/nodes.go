package node

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
)

// outer are the packets by which packets arrive encrypted: those of both kinds, as nodes may be on the way from one to the other.
func (c Config) outer() []value.Port {
	return []value.Port{{Protocol: unix.IPPROTO_ESP}, {Protocol: unix.IPPROTO_UDP, Port: uint16(c.WireGuardPort)}}
}

// Plaintext is what nodes that encrypt what they send each other may send in plaintext.
func (c Config) Plaintext() []value.Port { return slices.Concat(c.outer(), c.NodesExcept) }

// encryptsTo reports whether this node and another one encrypt what they send each other from their own addresses. The annotations decide, and not the
// keys: without a key nothing is sent.
func (f Facts) encryptsTo(n cluster.Node) bool { return f.Config.EncryptNodes && n.EncryptsNodes }

// nodesRules are the routing rules for what this node sends to such nodes; nil without. They do not depend on other nodes.
func (f Facts) nodesRules(own cluster.Node) *route.Nodes {
	if !f.Config.EncryptNodes {
		return nil
	}
	var rules route.Nodes
	for _, p := range f.Config.Plaintext() {
		rules.Plaintext = append(rules.Plaintext, route.Plaintext(p))
	}
	for _, a := range f.Local {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() && !slices.Contains(own.Addresses, a.Unmap()) {
			rules.Outside = append(rules.Outside, a)
		}
	}
	return &rules
}

// nodeRoute is the kernel stack's route for packets of the node itself to an address of such a node.
func nodeRoute(a netip.Addr, own cluster.Node, f Facts, mtu int) route.Route {
	r := vxlan.NodeRoute(HostPrefix(a), f.Tunnel.Index, mtu)
	r.Source = ownSource(own, a.Is4(), f.Uplink)
	return r
}
