// Package load loads the programs and maps of one configuration, adopts the maps that an earlier agent pinned, and
// pins those in use. Packages outside internal/datapath do not import it, since raw maps stay below
// internal/datapath.
package load

import (
	"errors"
	"fmt"
	"log/slog"
	gomaps "maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/device/localport"
)

// Objects are the programs and maps of one configuration, with their pins.
type Objects struct {
	collection
	// Generation is the only writer of the map `generation`.
	Generation *table.Generation
	// Tcx says that programs are attached as tcx links; otherwise they are filters of the clsact qdisc.
	Tcx bool

	Config  config.Datapath
	Log     *slog.Logger
	Fresh   []string             // names of maps that are not committed yet
	Resized map[string]*ebpf.Map // pinned maps that fresh ones of another size replace
	Pins    pins
	// Committed says that the next agent adopts these pins.
	Committed bool

	lock     sync.Mutex           // of Programs, to which Program adds
	loading  sync.Mutex           // held while the verifier runs, before lock; also of:
	rejected map[string]rejection // by program
}

// Open loads these programs. It uses the maps pinned below cfg.Root if their layout still fits, and new ones
// otherwise. Traffic does not change until the programs are attached and the maps committed. The caller closes the
// objects.
func Open(cfg config.Datapath, programs []string, log *slog.Logger) (*Objects, error) {
	l, err := NewLoader(cfg, log)
	if err != nil {
		return nil, err
	}
	return l.Open(programs, log)
}

// Open is the function Open with this loader.
func (l *loader) Open(programs []string, log *slog.Logger) (*Objects, error) {
	cfg := l.cfg
	if err := requireBPFFS(cfg.Root); err != nil {
		return nil, err
	}
	for _, dir := range []string{MapDir(cfg.Root), LinkDir(cfg.Root)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make directory for pins: %w", err)
		}
	}
	tcx, err := kernel.HaveTCX()
	if err != nil {
		return nil, fmt.Errorf("probe tcx: %w", err)
	}
	byLayout, err := pinsBelow(cfg.Root, l.Spec, log)
	if err != nil {
		return nil, err
	}
	maps, err := adoptMaps(byLayout, l.Spec, log)
	if err != nil {
		return nil, err
	}
	o := &Objects{Config: cfg, Log: log, Fresh: maps.fresh, Resized: maps.resized, Tcx: tcx, Pins: byLayout, rejected: map[string]rejection{}}
	o.collection, err = l.Load(slices.Concat(programs, cfg.AgentPrograms()), maps.adopted)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load datapath: %w", err), maps.close())
	}
	if err := maps.closeAdopted(); err != nil {
		return nil, errors.Join(fmt.Errorf("load datapath: %w", err), maps.close(), o.collection.Close())
	}
	o.Generation = &table.Generation{M: o.Maps.Generation}
	if err := errors.Join(o.carryOver(slices.Collect(gomaps.Keys(o.Resized))), o.recount()); err != nil {
		return nil, errors.Join(err, maps.close(), o.collection.Close())
	}
	return o, nil
}

// Commit pins the maps in use and removes the pins of the previous version. Call it when the tables are filled and
// every device has the new programs, except the devices of closed pods. Until then the next agent adopts the old maps, and
// a crash leaves the old state intact. A second call only restores missing pins.
func (o *Objects) Commit() error {
	if o.Committed {
		return o.Pins.renew(o.ByName, o.Log)
	}
	// The programs of an earlier agent have cached what their configuration allowed. And with number 0, of new maps whose
	// tables have not changed, nothing is cached.
	if err := o.Generation.Advance(); err != nil {
		return err
	}
	if err := errors.Join(o.carryOver(carriedTwice), o.recount()); err != nil {
		return err
	}
	for len(o.Fresh) > 0 {
		if err := o.Pins.put(o.Fresh[0], o.ByName[o.Fresh[0]]); err != nil {
			return err
		}
		o.Fresh = o.Fresh[1:] // a second attempt continues here
	}
	if err := o.Pins.commit(); err != nil {
		return err
	}
	o.Committed = true
	o.Pins.sweep(o.Log)
	return closeMaps(o.Resized)
}

// Close releases the agent's references to programs and maps; what is pinned keeps working.
func (o *Objects) Close() error {
	o.loading.Lock() // a program may just be loaded
	defer o.loading.Unlock()
	o.lock.Lock()
	defer o.lock.Unlock()
	return errors.Join(closeMaps(o.Resized), o.collection.Close())
}

// BeginsEmpty reports, before Commit, whether a map starts empty that normally outlives the agent.
func (o *Objects) BeginsEmpty(name string) bool {
	return slices.Contains(o.Fresh, name) && o.Resized[name] == nil
}

// NewLoader returns the loader of a configuration on this kernel.
func NewLoader(cfg config.Datapath, log *slog.Logger) (*loader, error) {
	cfg, err := withMarks(cfg)
	if err != nil {
		return nil, err
	}
	spec, err := specFor(cfg)
	if err != nil {
		return nil, err
	}
	l := &loader{Spec: spec, cfg: cfg}
	if cfg.StackServices {
		if err := kernel.AddConntrackTypes(&l.options); err != nil {
			return nil, err
		}
	}
	if cfg.AtSockets() && !kernel.HaveSocketErrors() {
		log.Info("the kernel lacks bpf_set_retval for sockets (Linux 6.1): packets to Services without endpoints are rejected, not connects")
		if err := spec.Variables[bpf.VarConfigSocketErrors].Set(false); err != nil {
			return nil, fmt.Errorf("set %s: %w", bpf.VarConfigSocketErrors, err)
		}
	}
	return l, nil
}

// specFor is the object of one configuration. It depends on the configuration only, not on the machine.
func specFor(cfg config.Datapath) (*ebpf.CollectionSpec, error) {
	spec, err := bpf.Load()
	if err != nil {
		return nil, fmt.Errorf("read datapath object: %w", err)
	}
	ports := cfg.NATPorts
	if ports == (localport.Range{}) {
		ports = localport.Range{First: 40000, Last: 65535}
	}
	for name, value := range map[string]any{
		bpf.VarConfigEbpfRouting: cfg.EBPFRouting,
		bpf.VarConfigNetkit:      cfg.Netkit,
		bpf.VarConfigToPod:       cfg.NeedsToPod(),
		bpf.VarConfigToWire:      cfg.NeedsToWire(),
		bpf.VarConfigHandled:     cfg.Handled,
		bpf.VarConfigNatHash:     natHash(cfg.Handled),
		bpf.VarConfigMacvlan:     cfg.Macvlan,
		// Locally administered and unicast, in the order of bytes in memory.
		bpf.VarConfigMacvlanSource: cfg.MacvlanSource&^0x03 | 0x02,
		bpf.VarConfigMasquerade:    cfg.Masquerade,
		bpf.VarConfigKubeProxy:     cfg.StackServices,
		bpf.VarConfigServices:      cfg.Services,
		bpf.VarConfigDsr:           cfg.DSR,
		bpf.VarConfigPolicy:        cfg.Policy,
		bpf.VarConfigFlows:         uint32(cfg.Flows),
		bpf.VarConfigFlowsSample:   max(cfg.FlowsSample, 1),
		bpf.VarConfigHostNetns:     cfg.HostNetns,
		bpf.VarConfigTunnelPort:    cfg.TunnelPort,

		bpf.VarConfigStrictEncryption: cfg.StrictEncryption(),

		bpf.VarConfigNatFirst: ports.First,
		bpf.VarConfigNatLast:  ports.Last,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	if cfg.FlowsRate > 0 {
		if err := spec.Variables[bpf.VarConfigFlowsRate].Set(cfg.FlowsRate); err != nil {
			return nil, fmt.Errorf("set %s: %w", bpf.VarConfigFlowsRate, err)
		}
	}
	if err := resize(spec, cfg); err != nil {
		return nil, err
	}
	return spec, countSlots(spec)
}

func MapDir(root string) string    { return filepath.Join(root, "maps") }
func LinkDir(root string) string   { return filepath.Join(root, "links") }
func SocketDir(root string) string { return filepath.Join(root, "sockets") }

// The name of a link's pin is the device's name, PinSeparator and the program's name. A BPF file system allows no '.'
// in names, as in eth0.100, so it becomes PinDot. Device names contain neither white space nor ':'.
const (
	PinSeparator = " "
	PinDot       = ":"
)
