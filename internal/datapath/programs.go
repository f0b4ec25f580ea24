package datapath

import (
	"errors"
	"fmt"
	gomaps "maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// ingress says of each program at a device on which side of it the program belongs.
var ingress = map[string]bool{
	bpfProgFromPod:    true,
	bpfProgToPod:      false,
	bpfProgFromWire:   true,
	bpfProgToWire:     false,
	bpfProgFromTunnel: true,
	bpfProgToTunnel:   false,
	bpfProgWireXdp:    true,
}

// programs are those that the datapath may attach with this configuration. The verifier takes its time for each program, and nobody has
// to wait for one that nothing will run.
func (c Config) programs() []string {
	all := []string{bpfProgFromPod, bpfProgFromTunnel, bpfProgToTunnel}
	if c.needsToPod() {
		all = append(all, bpfProgToPod)
	}
	if c.EBPFRouting || c.translates() {
		all = append(all, bpfProgFromWire)
	}
	if c.translates() {
		all = append(all, bpfProgToWire)
	}
	if c.mayAccelerate() {
		all = append(all, bpfProgWireXdp)
	}
	if c.atSockets() {
		all = append(all, socketProgramNames...)
	}
	return all
}

// agentPrograms are those that no packet meets: the agent runs them.
func (c Config) agentPrograms() []string {
	var all []string
	if c.tracks() {
		all = append(all, bpfProgFlushConntrack, bpfProgFlushPod)
	}
	if c.tracks() && c.Flows >= FlowsPolicy {
		all = append(all, bpfProgReportFlows)
	}
	if c.Flows != FlowsOff {
		all = append(all, bpfProgFlushDrops)
	}
	return all
}

// runAgentProgram runs one of agentPrograms; nil, where the configuration has no use for it, has nothing to do.
func runAgentProgram(program *ebpf.Program) error {
	if program == nil {
		return nil
	}
	_, err := program.Run(&ebpf.RunOptions{})
	return err
}

// needsToPod tells whether to_pod has anything to do. With eBPF routing and without Services and sessions the stack delivers to pods only
// what the node itself sends, which needs no second look.
func (c Config) needsToPod() bool { return !c.EBPFRouting || c.Services || c.tracks() }

// mayAccelerate tells whether there may be a device that takes wire_xdp.
func (c Config) mayAccelerate() bool {
	return c.Services && (c.Acceleration == AccelerationAuto || c.Acceleration == AccelerationXDP)
}

// atSockets tells whether sockets find Services.
func (c Config) atSockets() bool { return c.Services && c.Cgroup != "" }

// collection is what was loaded.
type collection struct {
	maps bpfMaps
	// byName are the same maps.
	byName map[string]*ebpf.Map
	// programs are those that were asked for.
	programs map[string]*ebpf.Program
}

// Close lets go of maps and programs.
func (o *collection) Close() error {
	err := o.maps.Close()
	for _, p := range o.programs {
		err = errors.Join(err, p.Close())
	}
	return err
}

// loader loads maps and programs for one configuration on this kernel.
type loader struct {
	spec    *ebpf.CollectionSpec
	options ebpf.ProgramOptions
}

// load makes maps, but for those that are given, and the programs named. The maps given remain the caller's, who may close them.
func (l *loader) load(programs []string, maps map[string]*ebpf.Map) (o collection, err error) {
	spec := l.spec.Copy()
	gomaps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(programs, name) })
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps, Programs: l.options})
	if err != nil {
		return collection{}, err
	}
	defer all.Close() // closes what o has not taken
	o.byName = gomaps.Clone(all.Maps)
	gomaps.DeleteFunc(o.byName, func(name string, _ *ebpf.Map) bool { return strings.HasPrefix(name, ".") }) // constants, which programs hold
	if err := all.Assign(&o.maps); err != nil {
		return collection{}, fmt.Errorf("find maps: %w", err)
	}
	o.programs, all.Programs = all.Programs, nil
	return o, nil
}

// program gives a program that was loaded.
func (o *objects) program(name string) (*ebpf.Program, error) {
	if p := o.programs[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("program %s is not loaded with this configuration", name)
}
