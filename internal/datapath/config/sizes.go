package config

// Sizes are how many entries the maps of routes, of Services, of translation and of policies have room for. 0 is the size that bpf/maps.h gives.
//
// Hashes have an array of buckets from the beginning: 16 bytes for each entry that they have room for, rounded up to a power of two.
// Their entries take memory when they are made, as all of a trie does. Affinities push out the least used
// entries: they are allocated whole, as Openings are.
type Sizes struct {
	// Routes counts prefixes of the cluster: of each node two for each family (--routes-max).
	Routes uint32
	// Services counts frontends (--services-max). As many Services can have counters and source ranges.
	Services uint32
	// Backends counts them once for each set (--backends-max). Tables of consistent hashing get half as many blocks.
	Backends uint32
	// Table counts directions, so twice what there can be of them (--nat-max).
	Connections uint32
	// Openings counts directions of connections that nobody has answered yet (--nat-pending-max).
	Openings uint32
	// Affinities counts clients of this node, and as many again from outside (--affinities-max).
	Affinities uint32
	// Identities counts addresses that policies tell apart, single ones and prefixes each (--identities-max).
	Identities uint32
	// Table counts who may be asked by whom, once for each set of rules (--policies-max). Ports get a quarter as many entries.
	Policies uint32
	// Table counts connections of pods that policies select, and of those that flows tell of (--conntrack-max).
	Sessions uint32
}

// PolicyPorts is how many ports there is room for where there is room for so many policies.
func PolicyPorts(policies uint32) uint32 { return policies/4 + min(policies%4, 1) }
