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

// Ingress says of each program at a device on which side of it the program belongs.
var Ingress = map[string]bool{
	bpf.ProgFromPod:    true,
	bpf.ProgToPod:      false,
	bpf.ProgFromWire:   true,
	bpf.ProgToWire:     false,
	bpf.ProgFromTunnel: true,
	bpf.ProgToTunnel:   false,
	bpf.ProgWireXdp:    true,
}

// collection is what was loaded.
type collection struct {
	Maps bpf.Maps
	// byName are the same maps.
	ByName map[string]*ebpf.Map
	// programs are those that were asked for.
	Programs map[string]*ebpf.Program
}

// Close lets go of maps and programs.
func (o *collection) Close() error {
	err := o.Maps.Close()
	for _, p := range o.Programs {
		err = errors.Join(err, p.Close())
	}
	return err
}

// loader loads maps and programs for one configuration on this kernel.
type loader struct {
	Spec    *ebpf.CollectionSpec
	options ebpf.ProgramOptions
}

// Load makes maps, but for those that are given, and the programs named. The maps given remain the caller's, who may close them.
func (l *loader) Load(programs []string, maps map[string]*ebpf.Map) (o collection, err error) {
	spec := l.Spec.Copy()
	gomaps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(programs, name) })
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps, Programs: l.options})
	if err != nil {
		return collection{}, err
	}
	defer all.Close() // closes what o has not taken
	o.ByName = gomaps.Clone(all.Maps)
	gomaps.DeleteFunc(o.ByName, func(name string, _ *ebpf.Map) bool { return strings.HasPrefix(name, ".") }) // constants, which programs hold
	if err := all.Assign(&o.Maps); err != nil {
		return collection{}, fmt.Errorf("find maps: %w", err)
	}
	o.Programs, all.Programs = all.Programs, nil
	return o, nil
}

// Program gives a program that was loaded.
func (o *Objects) Program(name string) (*ebpf.Program, error) {
	if p := o.Programs[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("program %s is not loaded with this configuration", name)
}
