package config

// Sizes are the capacities of the maps, in entries. 0 is the size that bpf/maps.h gives.
//
// Hash maps allocate their buckets when they are created: 16 bytes for each possible entry, rounded up to a power of
// two. Entries are allocated when they are added, as in a trie. The maps of Affinities and
// NATPending allocate all entries at creation.
type Sizes struct {
	// Routes counts prefixes: two per node and address family (--routes-max).
	Routes uint32
	// Services counts frontends (--services-max). As many Services can have counters and source ranges.
	Services uint32
	// Backends counts backends, once for each set that has them (--backends-max). There are half as many Maglev
	// blocks.
	Backends uint32
	// NAT counts NAT entries: each connection has two, one per direction (--nat-max).
	NAT uint32
	// NATPending counts NAT entries of connections without a reply yet (--nat-pending-max).
	NATPending uint32
	// Affinities counts clients on this node, and separately as many external clients (--affinities-max).
	Affinities uint32
	// Identities counts addresses that have an identity, and separately as many CIDRs (--identities-max).
	Identities uint32
	// Policies counts pairs of a rule set and a peer that the set allows (--policies-max). The port map has a quarter
	// as many entries.
	Policies uint32
	// Conntrack counts connections of pods that policies select or that flow events report (--conntrack-max).
	Conntrack uint32
}

// PolicyPorts is the capacity of the port map for a capacity of the policy map.
func PolicyPorts(policies uint32) uint32 { return policies/4 + min(policies%4, 1) }
