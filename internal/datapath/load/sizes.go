package load

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
)

// Maps that a configuration does not use have one entry, to save memory.
var (
	ServiceMaps = []string{
		bpf.MapServices, bpf.MapBackends, bpf.MapMaglev, bpf.MapAffinities, bpf.MapAffinitiesExt, bpf.MapServiceSources, bpf.MapServiceCounts, bpf.MapSockTcp,
	}
	TranslationMaps = []string{bpf.MapNat, bpf.MapNatPending, bpf.MapNatSlots, bpf.MapPendingSlots, bpf.MapNatPods}
	PolicyMaps      = []string{bpf.MapPolicyPods, bpf.MapIdentities, bpf.MapIdentityCidrs, bpf.MapPolicies, bpf.MapPolicyPorts}
)

// mapSizes are the sizes that differ from bpf/maps.h.
func mapSizes(cfg config.Datapath) map[string]uint32 {
	sizes := map[string]uint32{}
	for name, size := range map[string]uint32{
		bpf.MapRoutes:         cfg.Sizes.Routes,
		bpf.MapServices:       cfg.Sizes.Services,
		bpf.MapServiceSources: cfg.Sizes.Services,
		bpf.MapServiceCounts:  cfg.Sizes.Services,
		bpf.MapBackends:       cfg.Sizes.Backends,
		bpf.MapMaglev:         cfg.Sizes.Backends/2 + cfg.Sizes.Backends%2,
		bpf.MapAffinities:     cfg.Sizes.Affinities,
		bpf.MapAffinitiesExt:  cfg.Sizes.Affinities,
		bpf.MapNat:            cfg.Sizes.NAT,
		bpf.MapNatPending:     cfg.Sizes.NATPending,
		bpf.MapNatSlots:       cfg.Sizes.NAT / 2, // each connection has two entries
		bpf.MapPendingSlots:   cfg.Sizes.NATPending / 2,
		bpf.MapIdentities:     cfg.Sizes.Identities,
		bpf.MapIdentityCidrs:  cfg.Sizes.Identities,
		bpf.MapPolicies:       cfg.Sizes.Policies,
		bpf.MapPolicyPorts:    config.PolicyPorts(cfg.Sizes.Policies),
		bpf.MapConntrack:      cfg.Sizes.Conntrack,
		bpf.MapCtSlots:        cfg.Sizes.Conntrack,
	} {
		if size != 0 {
			sizes[name] = size
		}
	}
	if !cfg.Services {
		for _, name := range ServiceMaps {
			sizes[name] = 1
		}
	}
	if !cfg.Translates() {
		for _, name := range TranslationMaps {
			sizes[name] = 1
		}
	}
	if !cfg.Policy {
		for _, name := range PolicyMaps {
			sizes[name] = 1
		}
	}
	if !cfg.Tracks() {
		for _, name := range []string{bpf.MapConntrack, bpf.MapCtSlots, bpf.MapCtShares, bpf.MapCtNew} {
			sizes[name] = 1
		}
	}
	if !cfg.Translates() && !cfg.Tracks() {
		sizes[bpf.MapFragments] = 1
	}
	if cfg.Flows == config.FlowsOff {
		sizes[bpf.MapFlows] = uint32(os.Getpagesize()) // a ring buffer has at least a page
	}
	return sizes
}

func resize(spec *ebpf.CollectionSpec, cfg config.Datapath) error {
	for name, size := range mapSizes(cfg) {
		m, ok := spec.Maps[name]
		if !ok {
			return fmt.Errorf("set size of map %s: the object has none", name)
		}
		m.MaxEntries = size
	}
	return nil
}
