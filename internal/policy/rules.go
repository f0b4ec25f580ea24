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
		alike := map[content]int{} // rules with the same ports
		for i := range rules {
			of := &rule{policy: p.Key()}
			of.takePorts(rules[i].Ports)
			c.takePeers(of, p.Namespace, rules[i].Peers)
			if len(of.blocks) > 0 {
				ports := of.sumOfPorts(Direction(direction))
				c.takeLists(of, ports, alike[ports])
				alike[ports]++
			}
			r.rules[direction] = append(r.rules[direction], of)
		}
	}
	return r
}

func (c *conditions) takePeers(r *rule, namespace string, peers []cluster.PolicyPeer) {
	if len(peers) == 0 {
		r.everybody = [2]bool{true, true}
	}
	for i := range peers {
		peer := &peers[i]
		switch {
		case peer.Block.IsValid():
			if peer.Block.Bits() == 0 && len(peer.Except) == 0 {
				r.everybody[familyOf(peer.Block.Addr())] = true
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

// takeLists makes the lists of the rule's blocks. What stands for them is whose they are and what they are allowed, not what they are, nor where
// the rule stands: when blocks change, addresses come and go, and what is allowed those in the list stays what it is. number is how many
// rules before have the same ports.
func (c *conditions) takeLists(r *rule, ports content, number int) {
	for f := range r.lists {
		has := slices.ContainsFunc(r.blocks, func(p cluster.PolicyPeer) bool { return familyOf(p.Block.Addr()) == family(f) })
		if has && !r.everybody[f] {
			r.lists[f] = c.list(ports, number)
		}
	}
}

func (r *rule) takePorts(ports []cluster.PolicyPort) {
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
	r.grants = inOrder(r.grants)
	slices.SortFunc(r.named, func(a, b namedPort) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol))
	})
	r.named = slices.Compact(r.named)
}

// sumOfPorts gives the checksum of whose rule it is, and what it allows.
func (r *rule) sumOfPorts(direction Direction) content {
	d := newDigest("ports of a rule")
	d.text(direction.String())
	d.key(r.policy)
	d.grants(r.grants)
	d.named(r.named)
	return d.content()
}
