package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// family is that of addresses, as an index.
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

// namedPort is a port that has a number only in some pod.
type namedPort struct {
	name     string
	protocol cluster.Protocol
}

// rule is a rule of a NetworkPolicy in the one form that equal rules have.
type rule struct {
	policy cluster.Key
	// everybody says, for each family, that it is met by every address, pods that it is met by every pod of the cluster.
	everybody [2]bool
	pods      bool
	selectors []*condition // sorted by content
	// lists are the blocks of each family; nil without any, or where everybody meets the rule. blocks are the peers that they are made of.
	lists  [2]*condition
	blocks []cluster.PolicyPeer
	// grants are ports by number, of the rule's policy; named are those by name.
	grants []grant
	named  []namedPort
}

// eachCondition calls do with every condition that the rule asks for in some family.
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

// policyRules is a NetworkPolicy as it is used here, made when the first pod of this node is selected.
type policyRules struct {
	policy *cluster.NetworkPolicy
	rules  [2][]*rule // by direction
}

func (c *conditions) rulesOf(p *cluster.NetworkPolicy) *policyRules {
	r := &policyRules{policy: p}
	for direction, rules := range [2][]cluster.PolicyRule{p.Ingress, p.Egress} {
		for i := range rules {
			r.rules[direction] = append(r.rules[direction], c.ruleOf(p, Direction(direction), i, &rules[i]))
		}
	}
	return r
}

func (c *conditions) ruleOf(p *cluster.NetworkPolicy, direction Direction, number int, from *cluster.PolicyRule) *rule {
	all := len(from.Peers) == 0
	r := &rule{policy: p.Key(), everybody: [2]bool{all, all}}
	var has [2]bool
	for i := range from.Peers {
		peer := &from.Peers[i]
		switch {
		case peer.Block.IsValid():
			f := familyOf(peer.Block.Addr())
			has[f] = true
			r.everybody[f] = r.everybody[f] || peer.Block.Bits() == 0 && len(peer.Except) == 0
			r.blocks = append(r.blocks, *peer)
		case peer.Namespaces != nil && len(peer.Namespaces.Requirements) == 0 && (peer.Pods == nil || len(peer.Pods.Requirements) == 0):
			r.pods = true
		default:
			r.selectors = append(r.selectors, c.selector(p.Namespace, peer))
		}
	}
	for f := range has {
		if has[f] && !r.everybody[f] {
			r.lists[f] = c.list(r.policy, direction, number)
		}
	}
	slices.SortFunc(r.selectors, compareConditions)
	r.selectors = slices.Compact(r.selectors)
	if len(from.Ports) == 0 {
		r.grants = []grant{{policy: r.policy, last: 0xffff}}
	}
	for _, port := range from.Ports {
		switch {
		case port.Name != "":
			r.named = append(r.named, namedPort{port.Name, port.Protocol})
		case port.First == 0:
			r.grants = append(r.grants, grant{r.policy, port.Protocol, 0, 0xffff})
		default:
			r.grants = append(r.grants, grant{r.policy, port.Protocol, port.First, port.Last})
		}
	}
	r.grants = inOrder(r.grants)
	slices.SortFunc(r.named, func(a, b namedPort) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol))
	})
	r.named = slices.Compact(r.named)
	return r
}
