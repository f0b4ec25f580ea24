package node

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/ipseckeys"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
)

// IPsecPeers are the other nodes as peers of IPsec, what its tunnels depend on beside the keys. wrong says why a node is not
// among them.
func (f Facts) IPsecPeers() (in ipseckeys.Input, wrong map[string]string) {
	wrong = map[string]string{}
	in.Partial = f.Recovered > 0 || f.Snapshot.Incomplete
	for _, n := range f.Snapshot.Nodes {
		if n.Name == f.Config.NodeName {
			in.Created = n.Created
			if !in.Partial {
				in.Addresses = n.Addresses
			}
			continue
		}
		if n.Recovered { // its tunnels are kept
			continue
		}
		end, ok := f.tunnelEnd(n)
		if !ok {
			in.Unreachable = append(in.Unreachable, n.Name)
			wrong[n.Name] = fmt.Sprintf("none of its addresses %v is of a family of which this node has an InternalIP", n.Addresses)
			continue
		}
		local, _ := first(f.Held, end.Is4())
		p := ipseckeys.Peer{Name: n.Name, Announced: n.IPsec, Local: local, Remote: end, Prefixes: slices.Clone(n.PodCIDRs)}
		for _, a := range n.Addresses {
			p.Prefixes = append(p.Prefixes, HostPrefix(a))
		}
		in.Peers = append(in.Peers, p)
	}
	return in, wrong
}

// IPsecSpec is the desired XFRM interface with these peers. There must be an uplink.
func (f Facts) IPsecSpec(peers []ipsec.Peer) ipsec.Spec {
	return ipsec.Spec{MTU: f.encryptedMTUMin(), Addresses: f.encryptedAddresses(), Peers: peers, Partial: f.Recovered > 0 || f.Snapshot.Incomplete}
}
