package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	gomaps "maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/device"
)

// objects are the programs and maps of one configuration, with the pins by which they outlive the agent.
type objects struct {
	collection
	// generation is the only writer of the map `generation`.
	generation *generation
	// tcx says that programs are attached as tcx links; otherwise they are filters of the clsact qdisc.
	tcx bool

	config  Config
	log     *slog.Logger
	fresh   []string             // names of maps that are not the pinned ones (yet)
	resized map[string]*ebpf.Map // the pinned ones that fresh ones of another size replace
	pins    pins
	// committed says that the next agent takes over these pins.
	committed bool
}

// openObjects loads these programs, with the maps pinned below cfg.Root where these still fit and with new ones where they do not.
// Nothing that carries traffic changes until the programs are attached and the maps committed. The caller closes the objects.
func openObjects(cfg Config, programs []string, log *slog.Logger) (*objects, error) {
	l, err := loaderFor(cfg, log)
	if err != nil {
		return nil, err
	}
	return l.open(cfg, programs, log)
}

// open is openObjects with the object and the options of this loader.
func (l *loader) open(cfg Config, programs []string, log *slog.Logger) (*objects, error) {
	if err := requireBPFFS(cfg.Root); err != nil {
		return nil, err
	}
	for _, dir := range []string{mapDir(cfg.Root), linkDir(cfg.Root)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make directory for pins: %w", err)
		}
	}
	tcx, err := haveTCX()
	if err != nil {
		return nil, fmt.Errorf("probe tcx: %w", err)
	}
	byLayout, err := pinsBelow(cfg.Root, l.spec, log)
	if err != nil {
		return nil, err
	}
	maps, err := adoptMaps(byLayout, l.spec, log)
	if err != nil {
		return nil, err
	}
	o := &objects{config: cfg, log: log, fresh: maps.fresh, resized: maps.resized, tcx: tcx, pins: byLayout}
	o.collection, err = l.load(slices.Concat(programs, cfg.agentPrograms()), maps.adopted)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load datapath: %w", err), maps.close())
	}
	if err := maps.closeAdopted(); err != nil {
		return nil, errors.Join(fmt.Errorf("load datapath: %w", err), maps.close(), o.collection.Close())
	}
	o.generation = &generation{m: o.maps.Generation}
	if err := errors.Join(o.carryOver(slices.Collect(gomaps.Keys(o.resized))), o.recount()); err != nil {
		return nil, errors.Join(err, maps.close(), o.collection.Close())
	}
	return o, nil
}

// Commit pins the maps in use and removes the pins of the version before. Call it when the tables are filled and every device has the new
// programs: until then the next agent takes over the old programs' maps, and a crash leaves the old state whole. A second call only restores
// pins that are gone.
func (o *objects) Commit() error {
	if o.committed {
		return o.pins.renew(o.byName, o.log)
	}
	if slices.Contains(o.fresh, bpfMapGeneration) {
		// Tables that were adopted as they are have not advanced it, and nothing is cached under 0.
		if err := o.generation.advance(); err != nil {
			return err
		}
	}
	if err := errors.Join(o.carryOver(carriedTwice), o.recount()); err != nil {
		return err
	}
	for len(o.fresh) > 0 {
		if err := o.pins.put(o.fresh[0], o.byName[o.fresh[0]]); err != nil {
			return err
		}
		o.fresh = o.fresh[1:] // a second attempt continues here
	}
	if err := o.pins.commit(); err != nil {
		return err
	}
	o.committed = true
	o.pins.sweep(o.log)
	return closeMaps(o.resized)
}

// Close releases the agent's hold on programs and maps; what is pinned goes on working.
func (o *objects) Close() error { return errors.Join(closeMaps(o.resized), o.collection.Close()) }

// beginsEmpty tells, before Commit, whether a map begins empty although maps like it outlive the agent.
func (o *objects) beginsEmpty(name string) bool {
	return slices.Contains(o.fresh, name) && o.resized[name] == nil
}

// loaderFor gives what loads a configuration on this kernel.
func loaderFor(cfg Config, log *slog.Logger) (*loader, error) {
	spec, err := specFor(cfg)
	if err != nil {
		return nil, err
	}
	l := &loader{spec: spec}
	if cfg.StackServices {
		if err := conntrackTargets(&l.options); err != nil {
			return nil, err
		}
	}
	if cfg.atSockets() && !haveSocketErrors() {
		log.Info("the kernel lacks bpf_set_retval for sockets (Linux 6.1): Services without endpoints refuse packets instead")
		if err := spec.Variables[bpfVarConfigSocketErrors].Set(false); err != nil {
			return nil, fmt.Errorf("set %s: %w", bpfVarConfigSocketErrors, err)
		}
	}
	return l, nil
}

// specFor gives the object of one configuration. It is deterministic: nothing of the machine goes in.
func specFor(cfg Config) (*ebpf.CollectionSpec, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, fmt.Errorf("read datapath object: %w", err)
	}
	ports := cfg.NATPorts
	if ports == (device.PortSpan{}) {
		ports = device.PortSpan{First: 40000, Last: 65535}
	}
	for name, value := range map[string]any{
		bpfVarConfigEbpfRouting: cfg.EBPFRouting,
		bpfVarConfigMasquerade:  cfg.Masquerade,
		bpfVarConfigKubeProxy:   cfg.StackServices,
		bpfVarConfigServices:    cfg.Services,
		bpfVarConfigDsr:         cfg.DSR,
		bpfVarConfigPolicy:      cfg.Policy,
		bpfVarConfigFlows:       uint32(cfg.Flows),
		bpfVarConfigFlowsSample: max(cfg.FlowsSample, 1),
		bpfVarConfigHostNetns:   cfg.HostNetns,
		bpfVarConfigTunnelPort:  cfg.TunnelPort,
		bpfVarConfigNatFirst:    ports.First,
		bpfVarConfigNatLast:     ports.Last,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	if cfg.FlowsRate > 0 {
		if err := spec.Variables[bpfVarConfigFlowsRate].Set(cfg.FlowsRate); err != nil {
			return nil, fmt.Errorf("set %s: %w", bpfVarConfigFlowsRate, err)
		}
	}
	if err := resize(spec, cfg); err != nil {
		return nil, err
	}
	return spec, countSlots(spec)
}

func mapDir(root string) string    { return filepath.Join(root, "maps") }
func linkDir(root string) string   { return filepath.Join(root, "links") }
func socketDir(root string) string { return filepath.Join(root, "sockets") }
