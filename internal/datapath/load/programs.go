package load

import (
	"errors"
	"fmt"
	gomaps "maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Ingress reports, for each program at a device, whether its hook is ingress or egress.
var Ingress = map[string]bool{
	bpf.ProgFromPod:    true,
	bpf.ProgToPod:      false,
	bpf.ProgFromWire:   true,
	bpf.ProgToWire:     false,
	bpf.ProgFromTunnel: true,
	bpf.ProgToTunnel:   false,
	bpf.ProgWireXdp:    true,

	bpf.ProgFromMacvlan: false,
	bpf.ProgToMacvlan:   true,
}

// collection is what was loaded.
type collection struct {
	Maps bpf.Maps
	// ByName are the same maps.
	ByName map[string]*ebpf.Map
	// Programs are the programs that were requested.
	Programs map[string]*ebpf.Program
}

func (o *collection) Close() error {
	err := o.Maps.Close()
	for _, p := range o.Programs {
		err = errors.Join(err, p.Close())
	}
	return err
}

type loader struct {
	Spec    *ebpf.CollectionSpec
	options ebpf.ProgramOptions
}

// Load creates the maps that are not given and loads the named programs. The caller keeps the given maps and may
// close them.
func (l *loader) Load(programs []string, maps map[string]*ebpf.Map) (o collection, err error) {
	spec := l.Spec.Copy()
	gomaps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(programs, name) })
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps, Programs: l.options})
	if err != nil {
		return collection{}, err
	}
	defer all.Close() // closes what has not moved to o
	o.ByName = gomaps.Clone(all.Maps)
	gomaps.DeleteFunc(o.ByName, func(name string, _ *ebpf.Map) bool { return strings.HasPrefix(name, ".") }) // .rodata, which the programs hold
	if err := all.Assign(&o.Maps); err != nil {
		return collection{}, fmt.Errorf("find maps: %w", err)
	}
	o.Programs, all.Programs = all.Programs, nil
	return o, nil
}

// Program returns a loaded program.
func (o *Objects) Program(name string) (*ebpf.Program, error) {
	if p := o.Programs[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("program %s is not loaded with this configuration", name)
}
