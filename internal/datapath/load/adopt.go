package load

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// PrivateMaps belong to one load, as .rodata does: their content is of no use to the next.
var PrivateMaps = []string{bpf.MapFlowCache, bpf.MapNatScratch, bpf.MapPolicyScratch, bpf.MapVerdictScratch, bpf.MapIcmpRatelimit, bpf.MapXdpUplinks, bpf.MapFlowRatelimit, bpf.MapFlowShares}

// PinnedMaps are the maps that outlive the agent.
var PinnedMaps = []string{
	bpf.MapEndpoints, bpf.MapRoutes, bpf.MapRouteLengths, bpf.MapGeneration, bpf.MapDrops, bpf.MapNeighLease, bpf.MapTunnelSources,
	bpf.MapServices, bpf.MapBackends, bpf.MapMaglev, bpf.MapAffinities, bpf.MapAffinitiesExt, bpf.MapServiceSources, bpf.MapServiceCounts,
	bpf.MapNat, bpf.MapNatPending, bpf.MapNatSlots, bpf.MapPendingSlots, bpf.MapNatOwners, bpf.MapNatPods, bpf.MapUplinks, bpf.MapMacvlanPods, bpf.MapLimits, bpf.MapFragments, bpf.MapSockStorage, bpf.MapSockTcp, bpf.MapSockUdp,
	bpf.MapPolicyPods, bpf.MapIdentities, bpf.MapIdentityCidrs, bpf.MapPolicies, bpf.MapPolicyPorts, bpf.MapConntrack, bpf.MapCtSlots, bpf.MapCtShares, bpf.MapCtShareSize,
	bpf.MapCtNew,
	bpf.MapFlows, bpf.MapFlowLost, bpf.MapFlowDrops,
}

// refersTo lists, for a map, the other maps whose entries refer to its entries or that its entries refer to. If one
// of those is not adopted, the map's entries mean nothing, and cleaning them up would remove entries that the old
// programs still use.
var refersTo = map[string][]string{
	bpf.MapServices:       {bpf.MapBackends, bpf.MapMaglev, bpf.MapServiceSources},
	bpf.MapBackends:       {bpf.MapServices},
	bpf.MapMaglev:         {bpf.MapServices},
	bpf.MapServiceSources: {bpf.MapServices},
	bpf.MapServiceCounts:  {bpf.MapServices},
	bpf.MapAffinities:     {bpf.MapServices},
	bpf.MapAffinitiesExt:  {bpf.MapServices},
	bpf.MapSockStorage:    {bpf.MapBackends}, // sockets keep the numbers of backend sets
	bpf.MapSockUdp:        {bpf.MapBackends},

	bpf.MapNat:          {bpf.MapNatSlots, bpf.MapNatPods},
	bpf.MapNatSlots:     {bpf.MapNat},
	bpf.MapNatPending:   {bpf.MapPendingSlots},
	bpf.MapPendingSlots: {bpf.MapNatPending},
	bpf.MapNatPods:      {bpf.MapNat},

	bpf.MapConntrack: {bpf.MapCtSlots, bpf.MapGeneration},
	bpf.MapCtSlots:   {bpf.MapConntrack, bpf.MapCtShares},
	bpf.MapCtShares:  {bpf.MapCtSlots},
	bpf.MapCtNew:     {bpf.MapGeneration},

	bpf.MapPolicyPods:    {bpf.MapPolicies},
	bpf.MapIdentities:    {bpf.MapPolicies},
	bpf.MapIdentityCidrs: {bpf.MapPolicies},
	bpf.MapPolicies:      {bpf.MapPolicyPods, bpf.MapIdentities, bpf.MapIdentityCidrs, bpf.MapPolicyPorts},
	bpf.MapPolicyPorts:   {bpf.MapPolicies},
}

// adoption says which pinned maps of an earlier agent are used.
type adoption struct {
	// adopted are used unchanged. The caller closes them.
	adopted map[string]*ebpf.Map
	// resized differ from the new ones only in their size. Their entries are copied.
	resized map[string]*ebpf.Map
	// fresh are the names of the maps that start empty or with copied entries.
	fresh []string
}

// adoptMaps opens the maps that an earlier agent committed and whose layout is that of the new programs. The agent
// fills the fresh ones from the cluster and the endpoint files. A map that the earlier agent did not have starts
// empty and does not invalidate the others. Fresh ones get pins of their own.
func adoptMaps(p pins, spec *ebpf.CollectionSpec, log *slog.Logger) (_ *adoption, err error) {
	a := &adoption{adopted: map[string]*ebpf.Map{}, resized: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	outdated := map[string]error{}
	for _, name := range PinnedMaps {
		if !p.had(name) {
			continue
		}
		if outdated[name], err = a.adopt(name, p, spec.Maps[name]); err != nil {
			return a, err
		}
	}
	if err := a.leaveOut(outdated); err != nil {
		return a, err
	}
	for _, name := range PinnedMaps {
		switch reason := outdated[name]; {
		case a.adopted[name] != nil:
			log.Debug("map is adopted", "map", name)
			continue
		case a.resized[name] != nil:
			log.Info("map is replaced: its size has changed", "map", name, "from", a.resized[name].MaxEntries(), "to", spec.Maps[name].MaxEntries)
		case reason == nil:
			log.Debug("map is new", "map", name)
		default:
			log.Info("map is replaced", "map", name, "reason", reason)
		}
		a.fresh = append(a.fresh, name)
		p.replace(name)
	}
	return a, nil
}

var errOtherLayout = errors.New("its layout has changed")

// adopt opens a map of the earlier agent. Outdated is why it cannot be used.
func (a *adoption) adopt(name string, p pins, spec *ebpf.MapSpec) (outdated, err error) {
	if !slices.Contains(p.Before, p.Name(name)) {
		return errOtherLayout, nil
	}
	m, err := ebpf.LoadPinnedMap(p.Path(name), nil)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("its pin is gone"), nil
	case err != nil:
		return nil, fmt.Errorf("open pinned map %s: %w", name, err)
	}
	reason := spec.Compatible(m)
	if reason == nil {
		a.adopted[name] = m
		return nil, nil
	}
	if _, ok := carriers[name]; ok && sameButSize(spec, m) {
		a.resized[name] = m
		return nil, nil
	}
	if err := m.Close(); err != nil {
		return nil, fmt.Errorf("close outdated map %s: %w", name, err)
	}
	return reason, nil
}

// leaveOut drops the maps that refer to an outdated one, transitively.
func (a *adoption) leaveOut(outdated map[string]error) error {
	for again := true; again; {
		again = false
		for name, others := range refersTo {
			i := slices.IndexFunc(others, func(other string) bool { return outdated[other] != nil })
			if i < 0 || outdated[name] != nil {
				continue
			}
			for _, maps := range []map[string]*ebpf.Map{a.adopted, a.resized} {
				m := maps[name]
				if m == nil {
					continue
				}
				delete(maps, name)
				again, outdated[name] = true, fmt.Errorf("it refers to map %s, which is replaced", others[i])
				if err := m.Close(); err != nil {
					return fmt.Errorf("close outdated map %s: %w", name, err)
				}
			}
		}
	}
	return nil
}

func sameButSize(spec *ebpf.MapSpec, m *ebpf.Map) bool {
	spec = spec.Copy()
	spec.MaxEntries = m.MaxEntries()
	return spec.Compatible(m) == nil
}

// closeAdopted closes the adopted maps; the loaded collection has its own references.
func (a *adoption) closeAdopted() error { return closeMaps(a.adopted) }

func (a *adoption) close() error { return errors.Join(closeMaps(a.adopted), closeMaps(a.resized)) }

func closeMaps(maps map[string]*ebpf.Map) error {
	var err error
	for name, m := range maps {
		err = errors.Join(err, m.Close())
		delete(maps, name)
	}
	return err
}
