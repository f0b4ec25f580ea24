package ippool

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Family is an address family.
type Family int

// The families.
const (
	IPv4 Family = iota
	IPv6
	families
)

// Families are all families, in the order of a pod's addresses.
var Families = []Family{IPv4, IPv6}

// FamilyOf gives the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// String gives "IPv4" or "IPv6".
func (f Family) String() string { return [families]string{"IPv4", "IPv6"}[f] }

// Pool is an IPPool with the addresses that it may give.
type Pool struct {
	*cluster.IPPool
	// Spaces are the addresses by family: those of the pool's ranges that nothing else has.
	Spaces [families]Space
	// Overlaps are sentences on what else has addresses of the ranges.
	Overlaps []string
	// Shared says that more than one namespace may have addresses.
	Shared bool
}

// Families are the families that a pod gets addresses of.
func (p *Pool) Families() (all []Family) {
	for _, subnet := range p.Subnets {
		all = append(all, FamilyOf(subnet.Addr()))
	}
	return all
}

// Contains reports whether the pool may give an address.
func (p *Pool) Contains(a netip.Addr) bool { return p.Spaces[FamilyOf(a)].Contains(a) }

// Set is the pools of a cluster. It is immutable.
type Set struct {
	// Pools are sorted by age, the oldest first.
	Pools []*Pool
	// owners are the ranges of all pools with single addresses of others, sorted; they do not overlap. ofNodes are those parts of pools'
	// ranges that are pod ranges of Nodes.
	owners  []owner
	ofNodes []foreignSet
}

type owner struct {
	netipx.IPRange
	pool *Pool
}

// NewSet makes the set of pools. An address belongs to the oldest pool that has it. Addresses of nodes, those of the nodes'
// pod ranges, and reserved ones belong to none.
func NewSet(pools []*cluster.IPPool, nodes []cluster.Node, namespaces []*cluster.Namespace, reserved ...netip.Addr) *Set {
	s := &Set{}
	if len(pools) == 0 {
		return s
	}
	pools = slices.SortedFunc(slices.Values(pools), (*cluster.IPPool).Compare)
	foreign, single := foreignTo(pools, nodes, reserved)
	for i, from := range pools {
		p := &Pool{IPPool: from, Shared: isShared(from, namespaces)}
		var b netipx.IPSetBuilder
		for _, r := range from.Ranges {
			b.AddRange(r)
		}
		own, _ := b.IPSet() // the ranges were checked when they were read
		for _, older := range s.Pools[:i] {
			if of := rangesOf(older.IPPool); of.Overlaps(own) {
				b.RemoveSet(of)
				p.Overlaps = append(p.Overlaps, "IPPool "+older.Name+", which is older, has a part of its addresses")
			}
		}
		for _, f := range foreign {
			if f.set.Overlaps(own) {
				b.RemoveSet(f.set)
				s.ofNodes = append(s.ofNodes, f.within(own))
				p.Overlaps = append(p.Overlaps, f.what+" has a part of its addresses")
			}
		}
		p.Overlaps = inShort(p.Overlaps)
		given, _ := b.IPSet()
		for _, r := range given.Ranges() {
			s.owners = append(s.owners, owner{r, p})
		}
		b.RemoveSet(single)
		given, _ = b.IPSet()
		byFamily := [families][]netipx.IPRange{}
		for _, r := range given.Ranges() {
			f := FamilyOf(r.From())
			byFamily[f] = append(byFamily[f], r)
		}
		for _, f := range Families {
			p.Spaces[f] = NewSpace(byFamily[f])
		}
		s.Pools = append(s.Pools, p)
	}
	slices.SortFunc(s.owners, func(a, b owner) int { return a.From().Compare(b.From()) })
	return s
}

func rangesOf(p *cluster.IPPool) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, r := range p.Ranges {
		b.AddRange(r)
	}
	set, _ := b.IPSet()
	return set
}

// overlapsMax bounds the sentences of one pool.
const overlapsMax = 5

func inShort(all []string) []string {
	if more := len(all) - overlapsMax; more > 0 {
		return append(all[:overlapsMax:overlapsMax], fmt.Sprintf("%d more have parts of its addresses", more))
	}
	return all
}

// foreignSet is addresses that no pool gives. what names their owner, whose object was created at that time.
type foreignSet struct {
	set     *netipx.IPSet
	what    string
	created time.Time
}

// within gives the part of the addresses that is in a set, too.
func (f foreignSet) within(other *netipx.IPSet) foreignSet {
	var b netipx.IPSetBuilder
	b.AddSet(f.set)
	b.Intersect(other)
	f.set, _ = b.IPSet()
	return f
}

// foreignTo gives the addresses in the subnets of pools that nodes have for other pods, and the single ones: of nodes, and
// reserved ones.
func foreignTo(pools []*cluster.IPPool, nodes []cluster.Node, reserved []netip.Addr) (forPods []foreignSet, single *netipx.IPSet) {
	var subnets, all netipx.IPSetBuilder
	for _, a := range reserved {
		all.Add(a)
	}
	for _, p := range pools {
		for _, subnet := range p.Subnets {
			subnets.AddPrefix(subnet)
		}
	}
	within, _ := subnets.IPSet()
	for i := range nodes {
		n := &nodes[i]
		for _, a := range slices.Concat(n.Addresses, n.ExternalIPs, n.Lost) {
			if within.Contains(a) {
				all.Add(a)
			}
		}
		for _, cidr := range n.PodCIDRs {
			if within.OverlapsPrefix(cidr) {
				var b netipx.IPSetBuilder
				b.AddPrefix(cidr)
				set, _ := b.IPSet()
				forPods = append(forPods, foreignSet{set, fmt.Sprintf("the pod range %s of Node %s", cidr, n.Name), n.Created})
			}
		}
	}
	single, _ = all.IPSet()
	return forPods, single
}

// isShared reports whether more than one namespace may have addresses of a pool.
func isShared(p *cluster.IPPool, namespaces []*cluster.Namespace) bool {
	may := 0
	for _, n := range namespaces {
		if p.Namespaces == nil || p.Namespaces.Matches(n.Labels) {
			may++
		}
	}
	return may > 1
}

// Pool gives the pool of that name; nil if there is none.
func (s *Set) Pool(name string) *Pool {
	at := slices.IndexFunc(s.Pools, func(p *Pool) bool { return p.Name == name })
	if at < 0 {
		return nil
	}
	return s.Pools[at]
}

// Of gives the pool that may give an address; nil if there is none.
func (s *Set) Of(a netip.Addr) *Pool {
	if p := s.owner(a); p != nil && p.Contains(a) {
		return p
	}
	return nil
}

// Has reports whether an address that a pod has had since then is a pool's, also if a node or a Service has it: these may get it later
// than a pod. A Node that was created later takes no address from a pod with its range.
func (s *Set) Has(a netip.Addr, since time.Time) bool {
	if s.owner(a) != nil {
		return true
	}
	taken := false
	for _, f := range s.ofNodes {
		if !f.set.Contains(a) {
			continue
		}
		if !since.Before(f.created) {
			return false
		}
		taken = true
	}
	return taken
}

func (s *Set) owner(a netip.Addr) *Pool {
	at, found := slices.BinarySearchFunc(s.owners, a, func(o owner, a netip.Addr) int { return o.From().Compare(a) })
	if !found {
		at--
	}
	if at < 0 || !s.owners[at].Contains(a) {
		return nil
	}
	return s.owners[at].pool
}
