package policy

import (
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// cover is what rules that everybody meets allow. Each port is told of the first policy that allows it, as in merge.
type cover struct {
	ground *cluster.Key // allows every protocol
	taken  map[cluster.Protocol][]stretch
}

// withoutCovered leaves out the rules, and the names of ports, that change nothing beside the rules that everybody meets. What they ask of peers
// would tell apart peers that are alike to all rules.
func withoutCovered(rules []*setRule) []*setRule {
	var grants []grant
	for _, r := range rules {
		if r.everybody {
			grants = append(grants, r.grants...)
		}
	}
	if len(grants) == 0 {
		return rules
	}
	c := newCover(grants)
	return slices.DeleteFunc(rules, func(r *setRule) bool {
		r.named = slices.DeleteFunc(slices.Clone(r.named), func(n namedPort) bool {
			return c.has(&grant{r.rule.policy, n.protocol, 1, 0xffff})
		})
		if r.everybody || len(r.named) > 0 {
			return len(r.grants)+len(r.named) == 0
		}
		return !slices.ContainsFunc(r.grants, func(g grant) bool { return !c.has(&g) })
	})
}

func newCover(grants []grant) *cover {
	c := &cover{taken: map[cluster.Protocol][]stretch{}}
	for _, g := range inOrder(grants) { // of each protocol the policies in order
		switch {
		case g.protocol != 0:
			c.taken[g.protocol] = take(c.taken[g.protocol], stretch{g.first, g.last, g.policy})
		case c.ground == nil:
			c.ground = &g.policy
		}
	}
	return c
}

// has tells whether all that a grant allows is told of the same policy without it, or of one before it.
func (c *cover) has(g *grant) bool {
	if c.ground != nil && c.ground.Compare(g.policy) <= 0 {
		return true
	}
	if g.protocol == 0 {
		return false
	}
	next := uint32(g.first)
	taken := c.taken[g.protocol]
	at, _ := slices.BinarySearchFunc(taken, g.first, func(t stretch, first uint16) int { return int(t.last) - int(first) })
	for ; at < len(taken) && next <= uint32(g.last); at++ {
		if t := taken[at]; uint32(t.first) > next || t.policy.Compare(g.policy) > 0 {
			return false
		}
		next = uint32(taken[at].last) + 1
	}
	return next > uint32(g.last)
}
