// Package datapath assembles the datapath of one node: the programs and maps that package load opens, the tables of
// the packages below, and the attached programs. Only internal/datapath and the packages below it import cilium/ebpf,
// and they keep raw maps to themselves.
//
// Maps and links are pinned, so the datapath keeps working without the agent. Open adopts what an earlier agent
// pinned. Attaching replaces its programs one by one by an atomic update of the link, never by detaching.
package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/lb"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/macvlan"
	"github.com/beeline-cni/beeline/internal/datapath/nat"
	"github.com/beeline-cni/beeline/internal/datapath/policy"
	"github.com/beeline-cni/beeline/internal/datapath/samenode"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Datapath is the loaded datapath of one node. Its methods are safe for concurrent use, except that calls for one
// device must not overlap.
type Datapath struct {
	*attach.Attacher

	Endpoints fwd.Endpoints
	Routes    fwd.Routes
	Drops     flow.Drops
	Events    flow.Events
	Lease     fwd.Lease
	Limits    fwd.Limits
	Tunnel    fwd.Tunnel
	Uplinks   fwd.Uplinks
	Macvlans  macvlan.Table
	// Services and NAT exist in every configuration. Without config.Datapath's Services or Masquerade their maps have
	// one entry.
	Services *lb.Services
	NAT      *nat.Table
	Sockets  *lb.Sockets
	// Policies and Conntrack exist in every configuration. Without config.Datapath's Policy the maps of Policies have
	// one entry.
	Policies  *policy.Table
	Conntrack *conntrack.Table

	objects *load.Objects
}

// Open loads the programs that the configuration needs on every node: see load.AtStart. It uses the maps pinned below cfg.Root if their layout still
// fits, and new ones otherwise. Traffic does not change until the programs are attached and the maps committed. The
// caller closes the Datapath; closing does not stop traffic.
func Open(cfg config.Datapath, log *slog.Logger) (*Datapath, error) {
	programs, err := load.AtStart(cfg)
	if err != nil {
		return nil, err
	}
	o, err := load.Open(cfg, programs, log)
	if err != nil {
		return nil, err
	}
	d := Assemble(o)
	if err := d.Conntrack.Divide(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Assemble gives the tables their maps and the attacher its programs.
func Assemble(o *load.Objects) *Datapath {
	m := &o.Maps
	return &Datapath{
		Attacher:  attach.New(o),
		Endpoints: fwd.NewEndpoints(m, o.Generation),
		Routes:    fwd.NewRoutes(m, o.Generation),
		Drops:     flow.NewDrops(m),
		Events:    flow.NewEvents(m, o.Programs, o.Config.FlowsSample),
		Lease:     fwd.NewLease(m),
		Limits:    fwd.NewLimits(m),
		Tunnel:    fwd.NewTunnel(m),
		Uplinks:   fwd.NewUplinks(m, o.Generation),
		Macvlans:  macvlan.New(m, o.Generation),
		Services:  lb.New(m, o.Config.MaglevSize),
		NAT:       nat.New(m, o.Generation),
		Sockets:   lb.NewSockets(m, o.Log),
		Policies:  policy.New(m, o.Generation),
		Conntrack: conntrack.New(m, o.Programs),
		objects:   o,
	}
}

// Commit pins the maps in use and removes the pins of the previous version. Call it when the tables are filled and
// every device has the new programs, except the devices of closed pods. Until then the next agent adopts the old maps, and
// a crash leaves the old state intact. A second call only restores missing pins.
func (d *Datapath) Commit() error { return d.objects.Commit() }

// SameNode loads the programs of same-node sockets for sockets of the cgroup: see package samenode.
func (d *Datapath) SameNode(cgroup string, sockets uint32) (*samenode.SameNode, error) {
	return samenode.Open(d.objects, cgroup, sockets, d.objects.Log)
}

// Close releases the agent's references to programs and maps; what is pinned keeps working.
func (d *Datapath) Close() error { return errors.Join(d.Sockets.Close(), d.objects.Close()) }

// Programs describes the loaded programs: those at devices in the order in which a packet meets them, those at
// sockets, then programs that the agent runs.
func (d *Datapath) Programs() ([]table.ProgramInfo, error) { return d.objects.DescribePrograms() }

// Maps describes the tables with their memory.
func (d *Datapath) Maps() ([]table.MapInfo, error) { return d.objects.DescribeMaps() }

// HaveTCX reports whether programs are attached as tcx links; otherwise they are filters of the clsact qdisc.
func (d *Datapath) HaveTCX() bool { return d.objects.Tcx }

// PoliciesFresh reports, before Commit, whether the policy tables start empty instead of with an earlier agent's
// policies.
func (d *Datapath) PoliciesFresh() bool {
	before := d.objects.Resized[bpf.MapPolicyPods] // it has one entry if that agent did not enforce policies
	return slices.Contains(d.objects.Fresh, bpf.MapPolicyPods) && (before == nil || before.MaxEntries() == 1)
}

// PoliciesLost reports, before Commit, whether programs of an earlier agent are attached and a policy table starts
// empty. If all of them are empty the new programs allow everything.
func (d *Datapath) PoliciesLost() (bool, error) {
	if !d.PoliciesFresh() && !slices.ContainsFunc(load.PolicyMaps, d.objects.BeginsEmpty) {
		return false, nil
	}
	attached, err := d.Attachments()
	return len(attached) > 0, err
}

// ServicesLost reports, before Commit, whether programs of an earlier agent are attached and a Service table starts
// empty because its layout has changed.
func (d *Datapath) ServicesLost() (bool, error) {
	if !slices.ContainsFunc([]string{bpf.MapServices, bpf.MapBackends, bpf.MapMaglev, bpf.MapServiceSources}, d.objects.BeginsEmpty) {
		return false, nil
	}
	attached, err := d.Attachments()
	return len(attached) > 0, err
}

// ForgetPods removes the NAT entries and affinities of deleted pods' addresses, so that a pod that reuses an address
// does not inherit them. It returns how many entries it removed. Conntrack.Forget does the same for conntrack
// entries.
func (d *Datapath) ForgetPods(gone []netip.Addr) (removed int, err error) {
	removed, err = d.NAT.ForgetPods(gone)
	n, e := d.Services.ForgetClients(gone)
	return removed + n, errors.Join(err, e)
}

// Remembered returns the addresses within some ranges that ForgetPods would remove entries of, sorted. It reads whole
// tables.
func (d *Datapath) Remembered(within []netip.Prefix) ([]netip.Addr, error) {
	found := map[netip.Addr]bool{}
	take := func(a netip.Addr) {
		if slices.ContainsFunc(within, func(p netip.Prefix) bool { return p.Contains(a) }) {
			found[a] = true
		}
	}
	if err := errors.Join(d.NAT.Addresses(take), d.Services.Clients(take)); err != nil {
		return nil, fmt.Errorf("read entries of pods: %w", err)
	}
	return slices.SortedFunc(maps.Keys(found), netip.Addr.Compare), nil
}
