package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/policy"
)

// SyncError says that a Sync applied the tables incompletely, and which pods are default-deny instead.
type SyncError struct {
	// Sets are the incomplete rule sets.
	Sets []policy.Set
	// Pods are the addresses of the pods with these sets. They are default-deny in the directions concerned.
	Pods []netip.Addr
	// Err is the cause; a *FullError for each map that is full.
	Err error
}

func (e *SyncError) Error() string {
	return fmt.Sprintf("%d pod addresses are default-deny, since %d rule sets are incomplete: %v", len(e.Pods), len(e.Sets), e.Err)
}

func (e *SyncError) Unwrap() error { return e.Err }

// affectedPods are the pods with an incomplete set.
func (p *Table) affectedPods(pods map[netip.Addr]policy.Sets) []netip.Addr {
	var all []netip.Addr
	for a, sets := range pods {
		if p.incompleteSets[sets.Ingress] || p.incompleteSets[sets.Egress] {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// incomplete returns the sets that allow less or more than they should while these entries are missing.
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
			wanted := allowed(t.Policies, set, mistaken.wanted)
			if wanted != allowed(p.policies.has, set, mistaken.has) {
				incomplete[set] = true
			}
		}
	}
	return incomplete
}

// mistaken is the identity that addresses should have, and the one that they have instead.
type mistaken struct{ wanted, has policy.Identity }

// mistaken returns the wrong identities that result from missing entries.
func (p *Table) mistaken(t *policy.Tables, identities []netip.Addr, blocks []netip.Prefix) map[mistaken]bool {
	all := map[mistaken]bool{}
	for _, a := range identities {
		wanted, ok := t.Identities[a]
		if !ok {
			wanted, _ = t.Peers.Get(a)
		}
		all[mistaken{wanted, p.identity(a)}] = true
	}
	for _, prefix := range blocks {
		all[mistaken{t.Blocks[prefix], p.block(prefix)}] = true
	}
	return all
}

// identity is the identity of an address by the maps.
func (p *Table) identity(a netip.Addr) policy.Identity {
	if identity, ok := p.identities.known(a); ok {
		return identity
	}
	return p.block(netip.PrefixFrom(a, a.BitLen()))
}

// block is the identity of the addresses in a prefix: that of the longest prefix in the map.
func (p *Table) block(prefix netip.Prefix) policy.Identity {
	for bits := prefix.Bits(); bits >= 0; bits-- {
		if identity, ok := p.blocks.has[netip.PrefixFrom(prefix.Addr(), bits).Masked()]; ok {
			return identity
		}
	}
	return policy.IdentityUnknown
}

// allowed are the ports that a set allows an identity: see policy.Tables.
func allowed(policies map[policy.Peer]policy.Ports, set policy.Set, identity policy.Identity) policy.Ports {
	candidates := []policy.Identity{identity, policy.IdentityPod, policy.IdentityUnknown}
	if !identity.IsPod() {
		candidates = []policy.Identity{identity, policy.IdentityUnknown}
	}
	for _, i := range candidates {
		if ports, ok := policies[policy.Peer{Set: set, Identity: i}]; ok {
			return ports
		}
	}
	return 0
}
