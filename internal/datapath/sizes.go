package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

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
	// Connections counts directions, so twice what there can be of them (--nat-max).
	Connections uint32
	// Openings counts directions of connections that nobody has answered yet (--nat-pending-max).
	Openings uint32
	// Affinities counts clients of this node, and as many again from outside (--affinities-max).
	Affinities uint32
	// Identities counts addresses that policies tell apart, single ones and prefixes each (--identities-max).
	Identities uint32
	// Policies counts who may be asked by whom, once for each set of rules (--policies-max). Ports get a quarter as many entries.
	Policies uint32
	// Sessions counts connections of pods that policies select, and of those that flows tell of (--conntrack-max).
	Sessions uint32
}

// PolicyPorts is how many ports there is room for where there is room for so many policies.
func PolicyPorts(policies uint32) uint32 { return policies/4 + min(policies%4, 1) }

// sizeFlags names what an operator raises when a map is full.
var sizeFlags = map[string]string{
	bpfMapRoutes:         "--routes-max",
	bpfMapServices:       "--services-max",
	bpfMapServiceSources: "--services-max",
	bpfMapServiceCounts:  "--services-max",
	bpfMapBackends:       "--backends-max",
	bpfMapMaglev:         "--backends-max",
	bpfMapNat:            "--nat-max",
	bpfMapNatPending:     "--nat-pending-max",
	bpfMapAffinities:     "--affinities-max",
	bpfMapAffinitiesExt:  "--affinities-max",
	bpfMapIdentities:     "--identities-max",
	bpfMapIdentityCidrs:  "--identities-max",
	bpfMapPolicies:       "--policies-max",
	bpfMapPolicyPorts:    "--policies-max",
	bpfMapConntrack:      "--conntrack-max",
	bpfMapCtSlots:        "--conntrack-max",
}

// SizeFlag names the flag that makes a map larger; empty if none does.
func SizeFlag(name string) string { return sizeFlags[name] }

// Maps that a configuration has no use for get one entry, so that nobody pays for them.
var (
	serviceMaps = []string{
		bpfMapServices, bpfMapBackends, bpfMapMaglev, bpfMapAffinities, bpfMapAffinitiesExt, bpfMapServiceSources, bpfMapServiceCounts, bpfMapSockTcp,
	}
	translationMaps = []string{bpfMapNat, bpfMapNatPending, bpfMapNatSlots, bpfMapPendingSlots, bpfMapNatPods}
	policyMaps      = []string{bpfMapPolicyPods, bpfMapIdentities, bpfMapIdentityCidrs, bpfMapIdentityCache, bpfMapPolicyCache, bpfMapPolicies, bpfMapPolicyPorts}
)

// mapSizes gives the sizes that differ from those of bpf/maps.h.
func mapSizes(cfg Config) map[string]uint32 {
	sizes := map[string]uint32{}
	for name, size := range map[string]uint32{
		bpfMapRoutes:         cfg.Sizes.Routes,
		bpfMapServices:       cfg.Sizes.Services,
		bpfMapServiceSources: cfg.Sizes.Services,
		bpfMapServiceCounts:  cfg.Sizes.Services,
		bpfMapBackends:       cfg.Sizes.Backends,
		bpfMapMaglev:         cfg.Sizes.Backends/2 + cfg.Sizes.Backends%2,
		bpfMapAffinities:     cfg.Sizes.Affinities,
		bpfMapAffinitiesExt:  cfg.Sizes.Affinities,
		bpfMapNat:            cfg.Sizes.Connections,
		bpfMapNatPending:     cfg.Sizes.Openings,
		bpfMapNatSlots:       cfg.Sizes.Connections / 2, // each connection has two entries
		bpfMapPendingSlots:   cfg.Sizes.Openings / 2,
		bpfMapIdentities:     cfg.Sizes.Identities,
		bpfMapIdentityCidrs:  cfg.Sizes.Identities,
		bpfMapPolicies:       cfg.Sizes.Policies,
		bpfMapPolicyPorts:    PolicyPorts(cfg.Sizes.Policies),
		bpfMapConntrack:      cfg.Sizes.Sessions,
		bpfMapCtSlots:        cfg.Sizes.Sessions,
	} {
		if size != 0 {
			sizes[name] = size
		}
	}
	if !cfg.Services {
		for _, name := range serviceMaps {
			sizes[name] = 1
		}
	}
	if !cfg.translates() {
		for _, name := range translationMaps {
			sizes[name] = 1
		}
	}
	if !cfg.Policy {
		for _, name := range policyMaps {
			sizes[name] = 1
		}
	}
	if !cfg.tracks() {
		for _, name := range []string{bpfMapConntrack, bpfMapCtSlots, bpfMapCtShares, bpfMapCtNew} {
			sizes[name] = 1
		}
	}
	if !cfg.translates() && !cfg.tracks() {
		sizes[bpfMapFragments] = 1
	}
	if cfg.Flows == FlowsOff {
		sizes[bpfMapFlows] = uint32(os.Getpagesize()) // a ring buffer has at least a page
	}
	return sizes
}

// tracks tells whether there may be sessions: with flows of all pods also without policies.
func (c Config) tracks() bool { return c.Policy || c.Flows == FlowsAll }

// translates tells whether packets are translated at all.
func (c Config) translates() bool { return c.Services || c.Masquerade }

func resize(spec *ebpf.CollectionSpec, cfg Config) error {
	for name, size := range mapSizes(cfg) {
		m, ok := spec.Maps[name]
		if !ok {
			return fmt.Errorf("set size of map %s: the object has none", name)
		}
		m.MaxEntries = size
	}
	return nil
}

// FullError says that a map has no room for what should be there. What was there before stays.
type FullError struct {
	Map  string
	Size uint32
	// Flag is what makes the map larger.
	Flag string
}

func (e *FullError) Error() string {
	return fmt.Sprintf("map %s is full with %d entries: raise %s", e.Map, e.Size, e.Flag)
}

// fullOr gives the error of a write; cleared is what went wrong with taking a half of it back.
func fullOr(name string, m *ebpf.Map, err, cleared error) error {
	switch {
	case errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC):
		err = &FullError{Map: name, Size: m.MaxEntries(), Flag: sizeFlags[name]}
	default:
		err = fmt.Errorf("write map %s: %w", name, err)
	}
	if cleared != nil {
		err = errors.Join(err, fmt.Errorf("take entries of map %s back: %w", name, cleared))
	}
	return err
}
