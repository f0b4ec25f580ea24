package ipclaim

import (
	"net/netip"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// index has the claims that the store has delivered, with what the allocation needs to know of them. It may be behind the
// store: only the store decides which address is free. The Allocator's lock guards it.
type index struct {
	claims map[netip.Addr]*cluster.IPClaim
	// pods are the addresses of claims by pod, held those of this node by attachment.
	pods map[cluster.Key]map[netip.Addr]bool
	held map[Attachment]map[netip.Addr]bool
	// remote are the addresses of other nodes' pods, by node, and remoteLists those of them that pools have, as far as they
	// were asked for since the last change.
	remote      map[string]map[netip.Addr]bool
	remoteLists map[string][]netip.Addr
	// trying are addresses of allocations in progress.
	trying map[netip.Addr]bool
	node   string

	set *ippool.Set
	// uses are those of pools by name and family, of the claims in the pools' spaces.
	uses map[string]*[2]ippool.Use
}

func newIndex(node string) *index {
	x := &index{node: node, trying: map[netip.Addr]bool{}, set: &ippool.Set{}}
	x.replace(nil)
	return x
}

// replace replaces all claims.
func (x *index) replace(all []*cluster.IPClaim) {
	x.claims = make(map[netip.Addr]*cluster.IPClaim, len(all))
	x.pods, x.held, x.uses = map[cluster.Key]map[netip.Addr]bool{}, map[Attachment]map[netip.Addr]bool{}, map[string]*[2]ippool.Use{}
	x.remote, x.remoteLists = map[string]map[netip.Addr]bool{}, map[string][]netip.Addr{}
	for _, c := range all {
		x.put(c)
	}
}

// setPools replaces the pools.
func (x *index) setPools(set *ippool.Set) {
	x.set, x.uses, x.remoteLists = set, map[string]*[2]ippool.Use{}, map[string][]netip.Addr{}
	for _, c := range x.claims {
		x.count(c, 1)
	}
}

// put adds or replaces a claim.
func (x *index) put(c *cluster.IPClaim) {
	x.remove(c.Address)
	x.claims[c.Address] = c
	add(x.pods, podOf(c), c.Address)
	if c.Node == x.node && c.Bound() {
		add(x.held, attachmentOf(c), c.Address)
	}
	if node := x.remoteNode(c); node != "" {
		add(x.remote, node, c.Address)
		delete(x.remoteLists, node)
	}
	x.count(c, 1)
}

func (x *index) remove(a netip.Addr) {
	c := x.claims[a]
	if c == nil {
		return
	}
	delete(x.claims, a)
	drop(x.pods, podOf(c), a)
	drop(x.held, attachmentOf(c), a)
	if node := x.remoteNode(c); node != "" {
		drop(x.remote, node, a)
		delete(x.remoteLists, node)
	}
	x.count(c, -1)
}

// remoteNode is the other node whose pod has a claimed address; empty if no pod of another node has it.
func (x *index) remoteNode(c *cluster.IPClaim) string {
	if c == nil || !c.Bound() || c.Conflicts() || c.Node == x.node {
		return ""
	}
	return c.Node
}

// remoteAddresses gives the addresses of pools that pods of other nodes have, by node. The lists are shared. Only those
// of nodes that have changed are made again: a large cluster changes all the time.
func (x *index) remoteAddresses() map[string][]netip.Addr {
	all := make(map[string][]netip.Addr, len(x.remote))
	for node, addresses := range x.remote {
		list, known := x.remoteLists[node]
		if !known {
			for a := range addresses {
				if x.set.Has(a, x.claims[a].Created) {
					list = append(list, a)
				}
			}
			x.remoteLists[node] = list
		}
		if len(list) > 0 {
			all[node] = list
		}
	}
	return all
}

// count adds a claim to the uses, or subtracts it.
func (x *index) count(c *cluster.IPClaim, by int64) {
	if x.set.Pool(c.Pool) != nil && !c.Conflicts() {
		x.use(c.Pool, c.Address).Allocated += by
	}
	in := x.set.Of(c.Address)
	if in == nil {
		return
	}
	use := x.use(in.Name, c.Address)
	use.Taken += by
	if c.Conflicts() {
		use.Conflicts += by
		return
	}
	if use.Namespaces == nil {
		use.Namespaces = map[string]int64{}
	}
	if use.Namespaces[c.Namespace] += by; use.Namespaces[c.Namespace] == 0 {
		delete(use.Namespaces, c.Namespace)
	}
}

func (x *index) use(pool string, a netip.Addr) *ippool.Use {
	if x.uses[pool] == nil {
		x.uses[pool] = &[2]ippool.Use{}
	}
	return &x.uses[pool][ippool.FamilyOf(a)]
}

// useOf gives the use of a family of a pool.
func (x *index) useOf(p *ippool.Pool, f ippool.Family) ippool.Use {
	if of := x.uses[p.Name]; of != nil {
		return of[f]
	}
	return ippool.Use{}
}

// taken reports whether an address is not to be tried.
func (x *index) taken(a netip.Addr) bool { return x.claims[a] != nil || x.trying[a] }

func podOf(c *cluster.IPClaim) cluster.Key { return cluster.Key{Namespace: c.Namespace, Name: c.Pod} }

func attachmentOf(c *cluster.IPClaim) Attachment { return Attachment{c.ContainerID, c.IfName} }

func add[K comparable](to map[K]map[netip.Addr]bool, key K, a netip.Addr) {
	if to[key] == nil {
		to[key] = map[netip.Addr]bool{}
	}
	to[key][a] = true
}

func drop[K comparable](from map[K]map[netip.Addr]bool, key K, a netip.Addr) {
	if delete(from[key], a); len(from[key]) == 0 {
		delete(from, key)
	}
}
