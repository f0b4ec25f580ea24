package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// pinnedMaps are the maps that outlive the agent. The others (.rodata) belong to one load.
var pinnedMaps = []string{
	bpfMapEndpoints, bpfMapRoutes, bpfMapRouteLengths, bpfMapGeneration, bpfMapDrops, bpfMapLease, bpfMapTunnelSources,
	bpfMapServices, bpfMapBackends, bpfMapMaglev, bpfMapAffinities, bpfMapServiceSources, bpfMapServiceCounts,
	bpfMapConnections, bpfMapOpenings, bpfMapTranslatedPods, bpfMapUplinks, bpfMapXdpUplinks, bpfMapFragments, bpfMapRefusals, bpfMapPeers, bpfMapDatagrams,
}

// adoptMaps opens the pinned maps that have the shape the new programs want. The names in fresh have no
// such pin: these maps start empty, and their content is derived again from the cluster and the endpoint
// files. The caller closes the maps.
func adoptMaps(root string, spec *ebpf.CollectionSpec, log *slog.Logger) (adopted map[string]*ebpf.Map, fresh []string, err error) {
	open := map[string]*ebpf.Map{}
	defer func() {
		if err != nil {
			for _, m := range open {
				m.Close()
			}
		}
	}()
	for _, name := range pinnedMaps {
		m, err := ebpf.LoadPinnedMap(filepath.Join(mapDir(root), name), nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
			log.Debug("map is new", "map", name)
			fresh = append(fresh, name)
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("open pinned map %s: %w", name, err)
		}
		if err := spec.Maps[name].Compatible(m); err != nil {
			log.Info("map is replaced: its layout has changed", "map", name, "reason", err)
			fresh = append(fresh, name)
			if err := m.Close(); err != nil {
				return nil, nil, fmt.Errorf("close outdated map %s: %w", name, err)
			}
			continue
		}
		log.Debug("map is adopted", "map", name)
		open[name] = m
	}
	return open, fresh, nil
}
