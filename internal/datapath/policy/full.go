package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/policy"
)

// SyncError says that not all of the tables is in force, and who is closed instead.
type SyncError struct {
	// Sets are those of which something is missing.
	Sets []policy.Set
	// Pods are the addresses of the pods that have them: they are closed in the directions concerned.
	Pods []netip.Addr
	// Err is what went wrong; a *FullError for each map that is full.
	Err error
}

func (e *SyncError) Error() string {
	return fmt.Sprintf("%d addresses of pods are closed, since %d sets of rules are not in force: %v", len(e.Pods), len(e.Sets), e.Err)
}

// Unwrap gives what went wrong.
func (e *SyncError) Unwrap() error { return e.Err }

// concerned are the pods with a set that is not whole.
func (p *Table) concerned(pods map[netip.Addr]policy.Sets) []netip.Addr {
	var all []netip.Addr
	for a, sets := range pods {
		if p.unfinished[sets.Ingress] || p.unfinished[sets.Egress] {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// incomplete gives the sets that would not allow what they are to, with these entries missing.
func (p *Table) incomplete(
	t *policy.Tables, ports []policy.PortPrefix, policies []policy.Peer, identities []netip.Addr, blocks []netip.Prefix,
) map[policy.Set]bool {
	incomplete := map[policy.Set]bool{}
	lists := map[policy.Ports]bool{}
	for _, prefix := range ports {
		lists[prefix.Ports] = true
	}
	sets := map[policy.Set]bool{}
	for peer, list := range t.Policies {
		sets[peer.Set] = true
		if lists[list] {
			incomplete[peer.Set] = true
		}
	}
	for _, peer := range policies {
		incomplete[peer.Set] = true
	}
	for mistaken := range p.mistaken(t, identities, blocks) {
		for set := range sets {
			wanted := answer(t.Policies, set, mistaken.wanted)
			if wanted != answer(p.policies.has, set, mistaken.has) {
				incomplete[set] = true
			}
		}
	}
	return incomplete
}

// mistaken is an identity, and the one that addresses have instead.
type mistaken struct{ wanted, has policy.Identity }

// mistaken gives who is taken for whom while entries are missing.
func (p *Table) mistaken(t *policy.Tables, identities []netip.Addr, blocks []netip.Prefix) map[mistaken]bool {
	all := map[mistaken]bool{}
	for _, a := range identities {
		wanted, ok := t.Identities[a]
		if !ok {
			wanted, ok = t.Peers.Get(a)
		}
		if !ok {
			wanted = t.Singles[a]
		}
		all[mistaken{wanted, p.identity(a)}] = true
	}
	for _, prefix := range blocks {
		all[mistaken{t.Blocks[prefix], p.block(prefix)}] = true
	}
	return all
}

// identity gives that of an address, as the maps have it.
func (p *Table) identity(a netip.Addr) policy.Identity {
	if identity, ok := p.known(a); ok {
		return identity
	}
	return p.block(netip.PrefixFrom(a, a.BitLen()))
}

// block gives the identity of addresses in a prefix, as the longest prefix that the map has says it.
func (p *Table) block(prefix netip.Prefix) policy.Identity {
	for bits := prefix.Bits(); bits >= 0; bits-- {
		if identity, ok := p.blocks.has[netip.PrefixFrom(prefix.Addr(), bits).Masked()]; ok {
			return identity
		}
	}
	return policy.IdentityUnknown
}

// answer is what a set allows an identity: see policy.Tables.
func answer(policies map[policy.Peer]policy.Ports, set policy.Set, identity policy.Identity) policy.Ports {
	asked := []policy.Identity{identity, policy.IdentityPod, policy.IdentityUnknown}
	if !identity.IsPod() {
		asked = []policy.Identity{identity, policy.IdentityUnknown}
	}
	for _, i := range asked {
		if ports, ok := policies[policy.Peer{Set: set, Identity: i}]; ok {
			return ports
		}
	}
	return 0
}
