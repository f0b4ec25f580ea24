package load

import (
	"errors"
	"fmt"
	gomaps "maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
)

// Ingress reports, for each program at a device, whether its hook is ingress or egress.
var Ingress = map[string]bool{
	bpf.ProgFromPod:    true,
	bpf.ProgToPod:      false,
	bpf.ProgFromWire:   true,
	bpf.ProgToWire:     false,
	bpf.ProgFromTunnel: true,
	bpf.ProgToTunnel:   false,

	bpf.ProgFromWireguard: true,
	bpf.ProgFromIpsec:     true,

	bpf.ProgWireXdp: true,

	bpf.ProgFromMacvlan: false,
	bpf.ProgToMacvlan:   true,
}

// RareDevices are the programs of devices that few nodes have. The verifier takes as long for them as for all others.
var RareDevices = slices.Concat(bpf.TunnelPrograms, bpf.MacvlanPrograms, bpf.WireguardPrograms, bpf.IPsecPrograms)

// AtStart are the programs that an agent loads at once. The others are loaded when the first device needs them: see
// Objects.Program. Those that an earlier agent has attached are loaded at once, too: if the verifier rejects one, nothing
// has changed yet.
func AtStart(cfg config.Datapath) ([]string, error) {
	pins, err := os.ReadDir(LinkDir(cfg.Root))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return slices.DeleteFunc(cfg.Programs(), func(program string) bool {
		return slices.Contains(RareDevices, program) && !slices.ContainsFunc(pins, func(pin os.DirEntry) bool {
			return strings.HasSuffix(pin.Name(), PinSeparator+program)
		})
	}), nil
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
	cfg     config.Datapath
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

// retryAfter is how long a program that cannot be loaded is not tried again: the verifier takes seconds.
const retryAfter = time.Minute

// rejection is why and when a program could not be loaded.
type rejection struct {
	reason error
	at     time.Time
}

// Program returns a program of the configuration. Its first caller loads it, if Open has not. Meanwhile callers for
// loaded programs do not wait.
func (o *Objects) Program(name string) (*ebpf.Program, error) {
	if p := o.loaded(name); p != nil {
		return p, nil
	}
	o.loading.Lock()
	defer o.loading.Unlock()
	if p := o.loaded(name); p != nil {
		return p, nil
	}
	if !slices.Contains(o.Config.Programs(), name) {
		return nil, fmt.Errorf("this configuration has no program %s", name)
	}
	if last := o.rejected[name]; last.reason != nil && time.Since(last.at) < retryAfter {
		return nil, fmt.Errorf("%w (tried %s ago)", last.reason, time.Since(last.at).Round(time.Second))
	}
	begin := time.Now()
	if err := o.loadMore(name); err != nil {
		o.rejected[name] = rejection{err, time.Now()}
		return nil, err
	}
	o.Log.Info("program loaded", "program", name, "took", time.Since(begin).Round(time.Millisecond))
	return o.loaded(name), nil
}

// loaded returns a loaded program, or nil.
func (o *Objects) loaded(name string) *ebpf.Program {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.Programs[name]
}

// LoadMore loads those of the programs that are not loaded yet.
func (o *Objects) LoadMore(programs ...string) error {
	o.loading.Lock()
	defer o.loading.Unlock()
	missing := slices.DeleteFunc(slices.Clone(programs), func(name string) bool { return o.loaded(name) != nil })
	if len(missing) == 0 {
		return nil
	}
	return o.loadMore(missing...)
}

// loadMore loads programs with the maps and constants of the others. It reads the object again, whose instructions take
// megabytes. The caller holds loading.
func (o *Objects) loadMore(programs ...string) error {
	l, err := NewLoader(o.Config, o.Log)
	if err != nil {
		return err
	}
	more, err := l.Load(programs, o.ByName)
	if err != nil {
		return fmt.Errorf("load %s: %w", strings.Join(programs, ", "), err)
	}
	o.lock.Lock()
	gomaps.Copy(o.Programs, more.Programs)
	o.lock.Unlock()
	return more.Maps.Close()
}
