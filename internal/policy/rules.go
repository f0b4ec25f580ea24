package policy

import (
	"bytes"
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

// condition is something that rules ask of a peer. There is one for each content, whatever the number of rules that have it.
type condition struct {
	content content
	// selector is nil for lists of blocks.
	selector *selector
	// sets are those in force with rules that ask for it.
	sets []*numbered[*set]
	// mark is that of the last peer that was found to meet it: see Compiler.mark.
	mark uint64
}

// selector chooses pods.
type selector struct {
	scope *scope
	pods  []cluster.Requirement // canonical
}

// scope is the namespaces that a selector is about: one by its name, or those with some labels.
type scope struct {
	content    content
	namespace  string
	namespaces []cluster.Requirement // canonical; if namespace is empty
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

// conditions finds the conditions that there are.
type conditions struct {
	all    map[content]*condition
	scopes map[content]*scope
	bound  int // of all, above which those that are not used are dropped
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

func compareConditions(a, b *condition) int { return bytes.Compare(a.content[:], b.content[:]) }

func (c *conditions) selector(namespace string, peer *cluster.PolicyPeer) *condition {
	s := &selector{scope: c.scope(namespace, peer.Namespaces)}
	if peer.Pods != nil {
		s.pods = canonical(peer.Pods.Requirements)
	}
	d := newDigest("selector")
	d.bytes(s.scope.content[:])
	d.requirements(s.pods)
	return c.condition(condition{content: d.content(), selector: s})
}

func (c *conditions) scope(namespace string, namespaces *cluster.Selector) *scope {
	s := &scope{}
	d := newDigest("scope")
	if namespaces == nil {
		s.namespace = namespace
		d.text(namespace)
	} else {
		s.namespaces = canonical(namespaces.Requirements)
		d.requirements(s.namespaces)
	}
	s.content = d.content()
	if known := c.scopes[s.content]; known != nil {
		return known
	}
	c.scopes[s.content] = s
	return s
}

// list is the condition to be in the blocks of a rule. What stands for the blocks is the rule's place and not what they are: when a list
// changes, addresses come and go, and what is allowed those in it stays what it is.
func (c *conditions) list(policy cluster.Key, direction Direction, number int) *condition {
	d := newDigest("blocks")
	d.text(policy.Namespace)
	d.text(policy.Name)
	d.number(uint64(direction))
	d.number(uint64(number))
	return c.condition(condition{content: d.content()})
}

func (c *conditions) condition(of condition) *condition {
	if known := c.all[of.content]; known != nil {
		return known
	}
	c.all[of.content] = &of
	return &of
}
