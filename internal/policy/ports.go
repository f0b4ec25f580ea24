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
	// first and last are the range of ports.
	first, last uint16
}

// allPorts tells whether all ports of the protocol are allowed, also those that no rule can name, as 0.
func (g *grant) allPorts() bool { return g.first == 0 && g.last == 0xffff }

// inOrder sorts grants in place, by protocol and policy, and leaves out those that are there twice.
func inOrder(grants []grant) []grant {
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

// portList is what a set allows somebody: entries sorted by their prefixes. Of NetworkPolicies that allow the same port, the first by name
// is the one that is told of.
type portList []portEntry

// merge makes the list of what all grants allow together. Longer prefixes go before shorter ones, so what is told of a policy that
// allows every port of a protocol, or every protocol, is cut into by those alone that come before it.
func merge(grants []grant) portList {
	grants = inOrder(grants)
	var list portList
	var ground *cluster.Key // what holds for all that nothing before it is about
	for len(grants) > 0 {
		protocol := grants[0].protocol
		end := 1
		for end < len(grants) && grants[end].protocol == protocol {
			end++
		}
		of := grants[:end]
		grants = grants[end:]
		if protocol == 0 {
			ground = &of[0].policy
			list = append(list, portEntry{policy: of[0].policy})
			continue
		}
		list = appendPorts(list, of, ground)
	}
	return list
}

// stretch is a range of ports with the policy that is told of.
type stretch struct {
	first, last uint16
	policy      cluster.Key
}

// appendPorts adds what grants of one protocol, sorted by policy, allow where ground does not already do so first.
func appendPorts(list portList, grants []grant, ground *cluster.Key) portList {
	var taken []stretch // sorted, apart from each other
	for i := range grants {
		g := &grants[i]
		if ground != nil && ground.Compare(g.policy) <= 0 {
			break
		}
		if g.allPorts() {
			list = append(list, portEntry{PortPrefix{Bits: 8, Protocol: uint8(g.protocol)}, g.policy})
			// The rest is told of this one, but for other grants of the same policy, which change nothing.
			break
		}
		taken = take(taken, stretch{g.first, g.last, g.policy})
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

// take adds what is not taken yet of a stretch.
func take(taken []stretch, s stretch) []stretch {
	at, _ := slices.BinarySearchFunc(taken, s.first, func(t stretch, first uint16) int { return cmp.Compare(t.last, first) })
	// taken[at] is the first that ends at s.first or behind it.
	first := uint32(s.first)
	for first <= uint32(s.last) {
		if at == len(taken) || uint32(taken[at].first) > uint32(s.last) {
			return slices.Insert(taken, at, stretch{uint16(first), s.last, s.policy})
		}
		if uint32(taken[at].first) > first {
			taken = slices.Insert(taken, at, stretch{uint16(first), taken[at].first - 1, s.policy})
			at++
		}
		first = uint32(taken[at].last) + 1
		at++
	}
	return taken
}

// appendRange cuts a range into prefixes, at most 30.
func appendRange(list portList, protocol uint8, s stretch) portList {
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
