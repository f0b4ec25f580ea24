// Package macvlan has the datapath's table of the macvlan devices of pods.
package macvlan

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Key is what identifies a macvlan device on the wire.
type Key struct {
	// Parent is the index of the device of the node.
	Parent int
	MAC    fwd.MAC
}

// Pod is a pod with a macvlan device.
type Pod struct {
	// Netns is the cookie of the pod's network namespace (SO_NETNS_COOKIE): only frames from there may have the MAC.
	Netns uint64
	// IPv4 and IPv6 are the pod's addresses; the zero Addr if it has none of the family.
	IPv4, IPv6 netip.Addr
	// Interface is the index of the host's end, as in fwd.Endpoint, and HostMAC its MAC.
	Interface int
	HostMAC   fwd.MAC
}

// Table is the table of the macvlan devices of this node's pods. The agent is its only writer.
type Table struct {
	m          *ebpf.Map
	generation *table.Generation
}

// New returns the table on its map. A change of the table advances the generation: the flow cache has parts of it.
func New(m *bpf.Maps, generation *table.Generation) Table { return Table{m.MacvlanPods, generation} }

// All returns the table.
func (t Table) All() (map[Key]Pod, error) {
	all := map[Key]Pod{}
	err := table.Read(t.m, func(k *bpf.MacvlanKey, v *bpf.MacvlanPod) {
		all[Key{Parent: int(k.Parent), MAC: k.Mac}] = Pod{
			Netns: v.Netns, IPv4: v.Ipv4.Addr(), IPv6: v.Ipv6.Addr(), Interface: int(v.Ifindex), HostMAC: v.HostMac,
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read macvlan devices: %w", err)
	}
	return all, nil
}

// Sync makes the table equal to want, writing only differences, and returns how many entries it changed.
func (t Table) Sync(want map[Key]Pod) (int, error) {
	have, err := t.All()
	if err != nil {
		return 0, err
	}
	set, del := table.Diff(have, want)
	for k, v := range set {
		err = errors.Join(err, t.put(k, v))
	}
	for _, k := range del {
		err = errors.Join(err, t.remove(k))
	}
	changes := len(set) + len(del)
	if changes > 0 {
		err = errors.Join(err, t.generation.Advance())
	}
	return changes, err
}

// Set writes the entry of one device.
func (t Table) Set(k Key, v Pod) error { return errors.Join(t.put(k, v), t.generation.Advance()) }

// Delete removes the entry of one device; a missing one is no error.
func (t Table) Delete(k Key) error { return errors.Join(t.remove(k), t.generation.Advance()) }

func (t Table) put(k Key, v Pod) error {
	if err := t.m.Put(k.key(), v.value()); err != nil {
		return fmt.Errorf("set macvlan device %s on device %d: %w", k.MAC, k.Parent, err)
	}
	return nil
}

func (t Table) remove(k Key) error {
	if err := t.m.Delete(k.key()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete macvlan device %s on device %d: %w", k.MAC, k.Parent, err)
	}
	return nil
}

func (k Key) key() bpf.MacvlanKey { return bpf.MacvlanKey{Parent: uint32(k.Parent), Mac: k.MAC} }

func (m Pod) value() bpf.MacvlanPod {
	v := bpf.MacvlanPod{Netns: m.Netns, Ifindex: uint32(m.Interface), HostMac: m.HostMAC}
	if m.IPv4.IsValid() {
		v.Ipv4 = bpf.AddressOf(m.IPv4)
	}
	if m.IPv6.IsValid() {
		v.Ipv6 = bpf.AddressOf(m.IPv6)
	}
	return v
}
