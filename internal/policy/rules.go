package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// family is an address family, as an index.
type family uint8

const (
	ipv4 family = iota
	ipv6
)

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

// namedPort is a port that has a number only in a pod.
type namedPort struct {
	name     string
	protocol cluster.Protocol
}

// rule is a rule of a NetworkPolicy in canonical form.
type rule struct {
	policy cluster.Key
	// anyPeer reports, for each family, that every address matches; pods that every pod of the cluster does.
	anyPeer   [2]bool
	pods      bool
	selectors []*condition // sorted by content
	// lists are the blocks of each family; nil without any, or where every peer matches. blocks are the peers that they consist
	// of.
	lists  [2]*condition
	blocks []cluster.PolicyPeer
	// grants are ports by number, of the rule's policy; named are those by name.
	grants []grant
	named  []namedPort
}

// eachCondition calls do with every condition of the rule in some family.
func (r *rule) eachCondition(do func(*condition)) {
	for _, list := range r.lists {
		if list != nil {
			do(list)
		}
	}
	for _, c := range r.selectors {
		do(c)
	}
}

// policyRules is a compiled NetworkPolicy, made when it first selects a pod of this node.
type policyRules struct {
	policy *cluster.NetworkPolicy
	rules  [2][]*rule // by direction
}

func (c *conditions) rulesOf(p *cluster.NetworkPolicy) *policyRules {
	r := &policyRules{policy: p}
	for direction, rules := range [2][]cluster.PolicyRule{p.Ingress, p.Egress} {
		alike := map[content]int{} // rules with the same ports
		for i := range rules {
			of := &rule{policy: p.Key()}
			of.addPorts(rules[i].Ports)
			c.collectPeers(of, p.Namespace, rules[i].Peers)
			if len(of.blocks) > 0 {
				ports := of.sumOfPorts(Direction(direction))
				c.addLists(of, ports, alike[ports])
				alike[ports]++
			}
			r.rules[direction] = append(r.rules[direction], of)
		}
	}
	return r
}

func (c *conditions) collectPeers(r *rule, namespace string, peers []cluster.PolicyPeer) {
	if len(peers) == 0 {
		r.anyPeer = [2]bool{true, true}
	}
	for i := range peers {
		peer := &peers[i]
		switch {
		case peer.Block.IsValid():
			if peer.Block.Bits() == 0 && len(peer.Except) == 0 {
				r.anyPeer[familyOf(peer.Block.Addr())] = true
			}
			r.blocks = append(r.blocks, *peer)
		case peer.Namespaces != nil && len(peer.Namespaces.Requirements) == 0 && (peer.Pods == nil || len(peer.Pods.Requirements) == 0):
			r.pods = true
		default:
			r.selectors = append(r.selectors, c.selector(namespace, peer))
		}
	}
	slices.SortFunc(r.selectors, compareConditions)
	r.selectors = slices.Compact(r.selectors)
}

// addLists makes the lists of the rule's blocks. Their identity is the policy and what it allows, not the blocks nor the rule's
// position: when blocks change, only addresses change, and the entries of the list stay. number is how many previous rules have
// the same ports.
func (c *conditions) addLists(r *rule, ports content, number int) {
	for f := range r.lists {
		has := slices.ContainsFunc(r.blocks, func(p cluster.PolicyPeer) bool { return familyOf(p.Block.Addr()) == family(f) })
		if has && !r.anyPeer[f] {
			r.lists[f] = c.list(ports, number)
		}
	}
}

func (r *rule) addPorts(ports []cluster.PolicyPort) {
	if len(ports) == 0 {
		r.grants = []grant{{policy: r.policy, last: 0xffff}}
	}
	for _, port := range ports {
		switch {
		case port.Name != "":
			r.named = append(r.named, namedPort{port.Name, port.Protocol})
		case port.First == 0:
			r.grants = append(r.grants, grant{r.policy, port.Protocol, 0, 0xffff})
		default:
			r.grants = append(r.grants, grant{r.policy, port.Protocol, port.First, port.Last})
		}
	}
	r.grants = sortGrants(r.grants)
	slices.SortFunc(r.named, func(a, b namedPort) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol))
	})
	r.named = slices.Compact(r.named)
}

// sumOfPorts returns the checksum of the rule's policy and of what it allows.
func (r *rule) sumOfPorts(direction Direction) content {
	d := newDigest("ports of a rule")
	d.text(direction.String())
	d.key(r.policy)
	d.grants(r.grants)
	d.named(r.named)
	return d.content()
}
