package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
)

// privateMaps belong to one load, as .rodata does: what they hold is of no use to the next.
var privateMaps = []string{bpfMapDecisions, bpfMapTranslations, bpfMapInquiries, bpfMapPermitKeys, bpfMapIdentified, bpfMapRulings, bpfMapRefusals, bpfMapXdpUplinks, bpfMapFlowAllowance, bpfMapFlowShares}

// pinnedMaps are the maps that outlive the agent.
var pinnedMaps = []string{
	bpfMapEndpoints, bpfMapRoutes, bpfMapRouteLengths, bpfMapGeneration, bpfMapDrops, bpfMapLease, bpfMapTunnelSources,
	bpfMapServices, bpfMapBackends, bpfMapMaglev, bpfMapAffinities, bpfMapServiceSources, bpfMapServiceCounts,
	bpfMapConnections, bpfMapOpenings, bpfMapNatSlots, bpfMapPendingSlots, bpfMapNatOwners, bpfMapTranslatedPods, bpfMapUplinks, bpfMapFragments, bpfMapPeers, bpfMapStreams, bpfMapDatagrams,
	bpfMapPolicedPods, bpfMapIdentities, bpfMapBlocks, bpfMapPolicies, bpfMapPolicyPorts, bpfMapSessions, bpfMapSessionSlots, bpfMapSessionShares, bpfMapSessionShareSize,
	bpfMapYoungSessions,
	bpfMapFlows, bpfMapFlowLosses, bpfMapFlowDrops,
}

// adoptedTogether are maps whose entries refer to each other: with one of them new, the others' entries would mean nothing, and
// tidying them up would take from the old programs what these still use.
var adoptedTogether = [][]string{
	{
		bpfMapServices, bpfMapBackends, bpfMapMaglev, bpfMapAffinities, bpfMapServiceSources, bpfMapServiceCounts,
		bpfMapPeers, bpfMapDatagrams, // sockets remember sets by their number
	},
	{bpfMapConnections, bpfMapOpenings, bpfMapNatSlots, bpfMapPendingSlots, bpfMapNatOwners, bpfMapTranslatedPods},
	{bpfMapSessions, bpfMapSessionSlots, bpfMapSessionShares},
	{bpfMapPolicedPods, bpfMapIdentities, bpfMapBlocks, bpfMapPolicies, bpfMapPolicyPorts},
}

// adoption is what becomes of the maps that an earlier agent pinned.
type adoption struct {
	// adopted are used as they are. The caller closes them.
	adopted map[string]*ebpf.Map
	// resized are those that differ from the new ones in their size only. Their entries are to be carried over.
	resized map[string]*ebpf.Map
	// fresh are the names of the maps that start empty or with what is carried over.
	fresh []string
}

// adoptMaps opens the pinned maps that have the shape the new programs want. What the fresh ones hold is derived again from
// the cluster and the endpoint files.
func adoptMaps(root string, spec *ebpf.CollectionSpec, log *slog.Logger) (_ *adoption, err error) {
	a := &adoption{adopted: map[string]*ebpf.Map{}, resized: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	outdated := map[string]error{}
	for _, name := range pinnedMaps {
		m, err := ebpf.LoadPinnedMap(filepath.Join(mapDir(root), name), nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
			outdated[name] = errNotPinned
			continue
		case err != nil:
			return a, fmt.Errorf("open pinned map %s: %w", name, err)
		}
		if reason := spec.Maps[name].Compatible(m); reason == nil {
			a.adopted[name] = m
		} else if _, ok := carriers[name]; ok && sameButSize(spec.Maps[name], m) {
			a.resized[name] = m
		} else {
			outdated[name] = reason
			if err := m.Close(); err != nil {
				return a, fmt.Errorf("close outdated map %s: %w", name, err)
			}
		}
	}
	if err := a.leaveOut(outdated); err != nil {
		return a, err
	}
	for _, name := range pinnedMaps {
		reason := outdated[name]
		switch {
		case a.adopted[name] != nil:
			log.Debug("map is adopted", "map", name)
			continue
		case a.resized[name] != nil:
			log.Info("map is replaced: its size has changed", "map", name, "from", a.resized[name].MaxEntries(), "to", spec.Maps[name].MaxEntries)
		case errors.Is(reason, errNotPinned):
			log.Debug("map is new", "map", name)
		default:
			log.Info("map is replaced: its layout has changed", "map", name, "reason", reason)
		}
		a.fresh = append(a.fresh, name)
	}
	return a, nil
}

var errNotPinned = errors.New("there is no such pin")

// leaveOut gives up the maps that belong together with an outdated one. Where none was pinned, an earlier version did not have them.
func (a *adoption) leaveOut(outdated map[string]error) error {
	for _, group := range adoptedTogether {
		if !slices.ContainsFunc(group, func(name string) bool { return outdated[name] != nil }) {
			continue
		}
		for _, name := range group {
			for _, maps := range []map[string]*ebpf.Map{a.adopted, a.resized} {
				m := maps[name]
				if m == nil {
					continue
				}
				delete(maps, name)
				outdated[name] = errors.New("a map that it refers to is not the same")
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

// closeAdopted closes the maps that are used as they are, of which the loaded programs have their own.
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
