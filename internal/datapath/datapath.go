// Package datapath loads the BPF programs, attaches them, and keeps their tables. It is the only package
// that imports cilium/ebpf, and raw maps do not leave it: each table has a type with methods in the
// network's own terms.
//
// Maps and links are pinned, so the datapath goes on without the agent. Open adopts what an earlier agent
// left; attaching replaces its programs one by one by an atomic update of the link, never by detaching.
package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	gomaps "maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/device"
)

// Config is everything that a load of the datapath depends on.
type Config struct {
	// Root is a directory on a BPF file system; the datapath owns what is below it. The file system
	// itself is the caller's.
	Root string
	// EBPFRouting lets packets go from pod to pod by redirection; otherwise the host's stack forwards.
	EBPFRouting bool
	// Masquerade gives what pods send to the world the address of the uplink.
	Masquerade bool
	// StackServices says that the host's stack translates connections between pods, as kube-proxy has it do: with
	// eBPF routing each packet is then looked up in conntrack before it goes straight. Needs HaveConntrack.
	StackServices bool
	// Services lets the programs here translate Services. Without it their maps have one entry each.
	Services bool
	// Policy lets the programs put NetworkPolicies into force. Without it their maps have one entry each.
	Policy bool
	// Flows says what flows tell of, and FlowsRate how many drops a second each CPU may tell of; 0 is the rate of bpf/config.h.
	Flows     FlowMode
	FlowsRate uint32
	// FlowsSample lets flows tell of one session in so many; 0 and 1 are all of them.
	FlowsSample uint32
	// DSR lets backends of other nodes answer clients of the world directly, for Services that ask for it.
	DSR bool
	// HostNetns is the cookie of the node's own network namespace (SO_NETNS_COOKIE).
	HostNetns uint64
	// NATPorts are the ports that translation gives; the zero value is 40000 to 65535.
	NATPorts device.PortSpan
	// TunnelPort is the UDP port of tunnels, which nothing else gets to in a node's name; 0 where no node of the cluster has one.
	TunnelPort uint16
	// Sizes are those of the maps.
	Sizes Sizes
	// MaglevSize is the number of entries of each table of consistent hashing, a prime; 0 goes by the number of backends.
	MaglevSize int
	// Cgroup is the directory of the cgroup2 file system whose processes' sockets find Services; empty is none.
	Cgroup string
	// Acceleration says where connections from the world are forwarded.
	Acceleration Acceleration
}

// Acceleration says where connections from the world are forwarded.
type Acceleration string

// The places. The zero value is AccelerationTC.
const (
	// AccelerationAuto is AccelerationXDP where the uplink's driver has it and gains by it.
	AccelerationAuto Acceleration = "auto"
	// AccelerationXDP is in the driver, before the kernel makes a socket buffer of a packet.
	AccelerationXDP Acceleration = "xdp"
	// AccelerationTC is behind that, where every device can.
	AccelerationTC Acceleration = "tc"
)

// Datapath is the loaded datapath of one node. Its methods may be called from several goroutines, except
// that calls for one device must not overlap.
type Datapath struct {
	Endpoints Endpoints
	Routes    Routes
	Drops     Drops
	Flows     Flows
	Lease     Lease
	Tunnel    Tunnel
	Uplinks   Uplinks
	// Services and Connections are there in every configuration; without Config.Services or Config.Masquerade they have room for nothing.
	Services    *Services
	Connections *Connections
	Sockets     *Sockets
	// Policies and Sessions are there in every configuration, too; without Config.Policy Policies has room for nothing.
	Policies *Policies
	Sessions *Sessions

	config  Config
	log     *slog.Logger
	objects objects
	tcx     bool
	// stackSends: see SetStackSends.
	stackSends atomic.Bool
	fresh      []string             // names of maps that are not the pinned ones (yet)
	resized    map[string]*ebpf.Map // the pinned ones in whose place come fresh ones of another size
	pins       pins
	committed  bool // the pins are those that the next agent takes over
}

// Open loads the programs that the configuration has a use for, with the maps pinned below cfg.Root where these still fit and with new ones
// where they do not. Nothing that carries traffic changes until Attach and Commit. The caller closes the
// Datapath; closing does not stop the traffic.
func Open(cfg Config, log *slog.Logger) (*Datapath, error) {
	return open(cfg, cfg.programs(), log)
}

// open is Open with these programs.
func open(cfg Config, programs []string, log *slog.Logger) (*Datapath, error) {
	l, err := loaderFor(cfg, log)
	if err != nil {
		return nil, err
	}
	return openWith(l, cfg, programs, log)
}

// openWith is open with what this loader has.
func openWith(l *loader, cfg Config, programs []string, log *slog.Logger) (_ *Datapath, err error) {
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
	d := &Datapath{config: cfg, log: log, fresh: maps.fresh, resized: maps.resized, tcx: tcx, pins: byLayout}
	d.objects, err = l.load(slices.Concat(programs, cfg.agentPrograms()), maps.adopted)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load datapath: %w", err), maps.close())
	}
	if err := maps.closeAdopted(); err != nil {
		return nil, errors.Join(fmt.Errorf("load datapath: %w", err), maps.close(), d.objects.Close())
	}
	if err := errors.Join(d.carryOver(slices.Collect(gomaps.Keys(d.resized))), d.recount()); err != nil {
		return nil, errors.Join(err, maps.close(), d.objects.Close())
	}
	d.setTables()
	if err := d.Sessions.shares.divide(d.Sessions.m); err != nil {
		return nil, errors.Join(err, maps.close(), d.objects.Close())
	}
	return d, nil
}

// setTables gives the tables their maps.
func (d *Datapath) setTables() {
	generation := &generation{m: d.objects.bpfMaps.Generation}
	d.Endpoints = Endpoints{d.objects.bpfMaps.Endpoints, generation}
	d.Routes = Routes{d.objects.bpfMaps.Routes, d.objects.bpfMaps.RouteLengths, generation, new(bool)}
	d.Drops = Drops{d.objects.bpfMaps.Drops}
	d.Flows = Flows{
		events: d.objects.bpfMaps.Flows, losses: d.objects.bpfMaps.FlowLosses, sample: d.config.FlowsSample,
		tell: tellers{sessions: d.objects.programs[bpfProgTellSessions], drops: d.objects.programs[bpfProgTellDrops]},
	}
	d.Lease = Lease{d.objects.bpfMaps.Lease}
	d.Tunnel = Tunnel{d.objects.bpfMaps.TunnelSources}
	d.Uplinks = Uplinks{d.objects.bpfMaps.Uplinks, generation, new(bool)}
	d.Services = newServices(&d.objects.bpfMaps, d.config.MaglevSize)
	d.Connections = &Connections{
		connections: d.objects.bpfMaps.Connections,
		openings:    d.objects.bpfMaps.Openings,
		pods:        translatedPods{d.objects.bpfMaps.TranslatedPods},
		fragments:   d.objects.bpfMaps.Fragments,
		generation:  generation,
	}
	d.Policies = newPolicies(&d.objects.bpfMaps, generation)
	d.Sessions = &Sessions{
		m:         d.objects.bpfMaps.Sessions,
		young:     d.objects.bpfMaps.YoungSessions,
		settle:    d.objects.programs[bpfProgSettleSessions],
		forget:    d.objects.programs[bpfProgForgetPod],
		shares:    sessionShares{slots: d.objects.bpfMaps.SessionSlots, shares: d.objects.bpfMaps.SessionShares, size: d.objects.bpfMaps.SessionShareSize},
		decisions: d.objects.bpfMaps.Decisions,
	}
	d.Sockets = &Sockets{peers: d.objects.bpfMaps.Peers, log: d.log}
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
		bpfVarConfigEbpfRouting:   cfg.EBPFRouting,
		bpfVarConfigMasquerade:    cfg.Masquerade,
		bpfVarConfigStackServices: cfg.StackServices,
		bpfVarConfigServices:      cfg.Services,
		bpfVarConfigDsr:           cfg.DSR,
		bpfVarConfigPolicy:        cfg.Policy,
		bpfVarConfigFlows:         uint32(cfg.Flows),
		bpfVarConfigFlowsSample:   max(cfg.FlowsSample, 1),
		bpfVarConfigHostNetns:     cfg.HostNetns,
		bpfVarConfigTunnelPort:    cfg.TunnelPort,
		bpfVarConfigNatFirst:      ports.First,
		bpfVarConfigNatLast:       ports.Last,
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

// Commit pins the maps in use and removes the pins of the version before. Call it when the tables are filled and every device has the new
// programs: until then the next agent takes over the old programs' maps, and a crash leaves the old state whole. Called again, it does nothing but
// put back what somebody has removed.
func (d *Datapath) Commit() error {
	if d.committed {
		return d.pins.renew(d.objects.byName, d.log)
	}
	if slices.Contains(d.fresh, bpfMapGeneration) {
		// Tables that were adopted as they are have not advanced it, and nothing is kept of 0.
		if err := d.Routes.generation.advance(); err != nil {
			return err
		}
	}
	if err := errors.Join(d.carryOver(carriedTwice), d.recount()); err != nil {
		return err
	}
	for len(d.fresh) > 0 {
		if err := d.pins.put(d.fresh[0], d.objects.byName[d.fresh[0]]); err != nil {
			return err
		}
		d.fresh = d.fresh[1:] // a second attempt begins where this one ended
	}
	if err := d.pins.commit(); err != nil {
		return err
	}
	d.committed = true
	d.pins.sweep(d.log)
	return closeMaps(d.resized)
}

// Close releases the agent's hold on programs and maps; what is pinned goes on working.
func (d *Datapath) Close() error {
	return errors.Join(d.Sockets.close(), closeMaps(d.resized), d.objects.Close())
}

// Unload detaches everything and removes the pins: traffic of pods stops. The tables must not be used after it.
func (d *Datapath) Unload() error {
	links, err := d.Attachments()
	for _, a := range links {
		err = errors.Join(err, d.detach(a))
	}
	_, errSockets := detachSockets(d.config.Root)
	err = errors.Join(err, errSockets, os.RemoveAll(mapDir(d.config.Root)), os.RemoveAll(linkDir(d.config.Root)))
	return errors.Join(err, d.Close())
}

func mapDir(root string) string  { return filepath.Join(root, "maps") }
func linkDir(root string) string { return filepath.Join(root, "links") }
