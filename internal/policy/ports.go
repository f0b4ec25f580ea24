package policy

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// grant is ports that a rule allows.
type grant struct {
	policy   cluster.Key
	protocol cluster.Protocol // 0: every protocol
	// first and last are the range of ports, in host byte order.
	first, last uint16
}

// allPorts reports whether all ports of the protocol are allowed, also 0, which no rule can name.
func (g *grant) allPorts() bool { return g.first == 0 && g.last == 0xffff }

// sortGrants sorts grants in place, by protocol and policy, and removes duplicates.
func sortGrants(grants []grant) []grant {
	slices.SortFunc(grants, func(a, b grant) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), a.policy.Compare(b.policy), cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
	})
	return slices.Compact(grants)
}

// portEntry is an entry of Tables.Ports.
type portEntry struct {
	prefix PortPrefix // without Ports
	policy cluster.Key
}

// portList is what a set allows a peer: entries sorted by prefix. If several NetworkPolicies allow a port, the entry names the
// first.
type portList []portEntry

// merge makes the list of what all grants allow together. Longer prefixes take precedence, so a policy that allows every port
// of a protocol, or every protocol, is overridden only by policies that come before it.
func merge(grants []grant) portList {
	grants = sortGrants(grants)
	var list portList
	var anyProtocol *cluster.Key // allows every protocol; only policies before it override it
	for len(grants) > 0 {
		protocol := grants[0].protocol
		end := 1
		for end < len(grants) && grants[end].protocol == protocol {
			end++
		}
		of := grants[:end]
		grants = grants[end:]
		if protocol == 0 {
			anyProtocol = &of[0].policy
			list = append(list, portEntry{policy: of[0].policy})
			continue
		}
		list = appendPorts(list, of, anyProtocol)
	}
	return list
}

// portRange is a range of ports with the policy to report.
type portRange struct {
	first, last uint16
	policy      cluster.Key
}

// appendPorts adds what grants of one protocol, sorted by policy, allow unless anyProtocol's policy comes first.
func appendPorts(list portList, grants []grant, anyProtocol *cluster.Key) portList {
	var taken []portRange // sorted, disjoint
	for i := range grants {
		g := &grants[i]
		if anyProtocol != nil && anyProtocol.Compare(g.policy) <= 0 {
			break
		}
		if g.allPorts() {
			list = append(list, portEntry{PortPrefix{Bits: 8, Protocol: uint8(g.protocol)}, g.policy})
			// All other ports report this policy; further grants of the same policy change nothing.
			break
		}
		taken = take(taken, portRange{g.first, g.last, g.policy})
	}
	for i := 0; i < len(taken); {
		whole := taken[i]
		for i++; i < len(taken) && taken[i].policy == whole.policy && taken[i].first == whole.last+1; i++ {
			whole.last = taken[i].last
		}
		list = appendRange(list, uint8(grants[0].protocol), whole)
	}
	return list
}

// take adds the parts of a range that are not taken yet.
func take(taken []portRange, s portRange) []portRange {
	at, _ := slices.BinarySearchFunc(taken, s.first, func(t portRange, first uint16) int { return cmp.Compare(t.last, first) })
	// taken[at] is the first that ends at s.first or behind it.
	first := uint32(s.first)
	for first <= uint32(s.last) {
		if at == len(taken) || uint32(taken[at].first) > uint32(s.last) {
			return slices.Insert(taken, at, portRange{uint16(first), s.last, s.policy})
		}
		if uint32(taken[at].first) > first {
			taken = slices.Insert(taken, at, portRange{uint16(first), taken[at].first - 1, s.policy})
			at++
		}
		first = uint32(taken[at].last) + 1
		at++
	}
	return taken
}

// appendRange splits a range into at most 30 prefixes.
func appendRange(list portList, protocol uint8, s portRange) portList {
	for first := uint32(s.first); first <= uint32(s.last); {
		size := uint32(1) << 16
		if first != 0 {
			size = 1 << bits.TrailingZeros32(first)
		}
		for first+size-1 > uint32(s.last) {
			size >>= 1
		}
		list = append(list, portEntry{PortPrefix{Bits: uint8(24 - bits.TrailingZeros32(size)), Protocol: protocol, Port: uint16(first)}, s.policy})
		first += size
	}
	return list
}

func (l portList) content() content {
	d := newDigest("ports")
	for _, e := range l {
		d.number(uint64(e.prefix.Bits)<<32 | uint64(e.prefix.Protocol)<<16 | uint64(e.prefix.Port))
		d.key(e.policy)
	}
	return d.content()
}

// grants adds ports without their policies.
func (d *digest) grants(all []grant) {
	d.number(uint64(len(all)))
	for _, g := range all {
		d.number(uint64(g.protocol)<<32 | uint64(g.first)<<16 | uint64(g.last))
	}
}

func (d *digest) named(all []namedPort) {
	d.number(uint64(len(all)))
	for _, n := range all {
		d.text(n.name)
		d.number(uint64(n.protocol))
	}
}

// coverage is what rules that match every peer allow. Each port reports the first policy that allows it, as in merge.
type coverage struct {
	anyProtocol *cluster.Key // allows every protocol
	taken       map[cluster.Protocol][]portRange
}

// dropCovered removes the rules, and the names of ports, that add nothing to the rules that match every peer. Their conditions
// would split identities that all rules treat alike.
func dropCovered(rules []*setRule) []*setRule {
	var grants []grant
	for _, r := range rules {
		if r.anyPeer {
			grants = append(grants, r.grants...)
		}
	}
	if len(grants) == 0 {
		return rules
	}
	c := newCoverage(grants)
	return slices.DeleteFunc(rules, func(r *setRule) bool {
		r.named = slices.DeleteFunc(slices.Clone(r.named), func(n namedPort) bool {
			return c.has(&grant{r.rule.policy, n.protocol, 1, 0xffff})
		})
		if r.anyPeer || len(r.named) > 0 {
			return len(r.grants)+len(r.named) == 0
		}
		return !slices.ContainsFunc(r.grants, func(g grant) bool { return !c.has(&g) })
	})
}

func newCoverage(grants []grant) *coverage {
	c := &coverage{taken: map[cluster.Protocol][]portRange{}}
	for _, g := range sortGrants(grants) { // for each protocol the policies in order
		switch {
		case g.protocol != 0:
			c.taken[g.protocol] = take(c.taken[g.protocol], portRange{g.first, g.last, g.policy})
		case c.anyProtocol == nil:
			c.anyProtocol = &g.policy
		}
	}
	return c
}

// has reports whether the rules allow all of a grant, and report its policy or one before it.
func (c *coverage) has(g *grant) bool {
	if c.anyProtocol != nil && c.anyProtocol.Compare(g.policy) <= 0 {
		return true
	}
	if g.protocol == 0 {
		return false
	}
	next := uint32(g.first)
	taken := c.taken[g.protocol]
	at, _ := slices.BinarySearchFunc(taken, g.first, func(t portRange, first uint16) int { return int(t.last) - int(first) })
	for ; at < len(taken) && next <= uint32(g.last); at++ {
		if t := taken[at]; uint32(t.first) > next || t.policy.Compare(g.policy) > 0 {
			return false
		}
		next = uint32(taken[at].last) + 1
	}
	return next > uint32(g.last)
}
