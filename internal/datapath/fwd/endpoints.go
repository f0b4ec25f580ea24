package fwd

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Endpoint is the pod device behind an address of this node.
type Endpoint struct {
	// Interface is the index of the host's end.
	Interface int
	PodMAC    MAC
	HostMAC   MAC
	// ThroughStack leaves the pod's packets to the host's kernel stack, also with eBPF routing.
	ThroughStack bool
	// Underlay says that the external network knows the address: it is of an IPPool. The pod is never masqueraded.
	Underlay bool
	// Namespace is the pod's netns id in the host's network namespace (IFLA_LINK_NETNSID), plus 1: policy code looks
	// up TCP sockets there. 0: unknown.
	Namespace int
	// Parent is the index of the device that the pod's macvlan device is on; 0 for a pod with another kind of device.
	Parent int
	// LimitedEgress says that Limits has a limit of what the pod sends; LimitedIngress that the host end has a qdisc that limits what it
	// receives.
	LimitedEgress, LimitedIngress bool
}

// NamespaceMax is the largest Endpoint.Namespace of the datapath. The kernel assigns the lowest free id.
const NamespaceMax = math.MaxUint16

// Endpoints is the table of the addresses of this node's pods. The agent is its only writer.
type Endpoints struct {
	m          *ebpf.Map
	generation *table.Generation
}

// NewEndpoints returns the table on its map.
func NewEndpoints(m *bpf.Maps, g *table.Generation) Endpoints { return Endpoints{m.Endpoints, g} }

// Set adds or replaces the endpoint of an address.
func (t Endpoints) Set(a netip.Addr, e Endpoint) error {
	if err := t.put(a, e); err != nil {
		return err
	}
	return t.generation.Advance()
}

func (t Endpoints) put(a netip.Addr, e Endpoint) error {
	if err := t.m.Put(bpf.AddressOf(a), e.value()); err != nil {
		return fmt.Errorf("set endpoint %s: %w", a, err)
	}
	return nil
}

// Delete removes an address. A missing address is no error.
func (t Endpoints) Delete(a netip.Addr) error {
	if err := t.remove(a); err != nil {
		return err
	}
	return t.generation.Advance()
}

func (t Endpoints) remove(a netip.Addr) error {
	if err := t.m.Delete(bpf.AddressOf(a)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete endpoint %s: %w", a, err)
	}
	return nil
}

// All returns the table.
func (t Endpoints) All() (map[netip.Addr]Endpoint, error) {
	all := map[netip.Addr]Endpoint{}
	err := table.Read(t.m, func(k *bpf.Address, v *bpf.Endpoint) {
		all[k.Addr()] = Endpoint{
			Interface: int(v.Ifindex), PodMAC: v.PodMac, HostMAC: v.HostMac, ThroughStack: v.ThroughStack != 0,
			Underlay: v.Underlay != 0, Namespace: int(v.Netns), Parent: int(v.Parent),
			LimitedEgress: v.LimitedEgress != 0, LimitedIngress: v.LimitedIngress != 0,
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read endpoints: %w", err)
	}
	return all, nil
}

// Sync makes the table equal to want, writing only differences, and returns how many entries it changed.
func (t Endpoints) Sync(want map[netip.Addr]Endpoint) (int, error) {
	have, err := t.All()
	if err != nil {
		return 0, err
	}
	set, del := table.Diff(have, want)
	for a, e := range set {
		err = errors.Join(err, t.put(a, e))
	}
	for _, a := range del {
		err = errors.Join(err, t.remove(a))
	}
	if len(set)+len(del) > 0 {
		err = errors.Join(err, t.generation.Advance())
	}
	return len(set) + len(del), err
}

func (e Endpoint) value() bpf.Endpoint {
	v := bpf.Endpoint{Ifindex: uint32(e.Interface), PodMac: e.PodMAC, HostMac: e.HostMAC, Parent: uint32(e.Parent)}
	if e.ThroughStack {
		v.ThroughStack = 1
	}
	if e.Underlay {
		v.Underlay = 1
	}
	if e.LimitedEgress {
		v.LimitedEgress = 1
	}
	if e.LimitedIngress {
		v.LimitedIngress = 1
	}
	if e.Namespace > 0 && e.Namespace <= NamespaceMax {
		v.Netns = uint16(e.Namespace)
	}
	return v
}
