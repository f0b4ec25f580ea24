package fwd

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// MacvlanKey is what identifies a macvlan device on the wire.
type MacvlanKey struct {
	// Parent is the index of the device of the node.
	Parent int
	MAC    MAC
}

// Macvlan is a pod with a macvlan device.
type Macvlan struct {
	// Netns is the cookie of the pod's network namespace (SO_NETNS_COOKIE): only frames from there may have the MAC.
	Netns uint64
	// IPv4 and IPv6 are the pod's addresses; the zero Addr if it has none of the family.
	IPv4, IPv6 netip.Addr
	// Interface is the index of the host's end, as in Endpoint, and HostMAC its MAC.
	Interface int
	HostMAC   MAC
}

// Macvlans is the table of the macvlan devices of this node's pods. The agent is its only writer.
type Macvlans struct{ m *ebpf.Map }

// NewMacvlans returns the table on its map.
func NewMacvlans(m *bpf.Maps) Macvlans { return Macvlans{m.MacvlanPods} }

// All returns the table.
func (t Macvlans) All() (map[MacvlanKey]Macvlan, error) {
	all := map[MacvlanKey]Macvlan{}
	err := table.Read(t.m, func(k *bpf.MacvlanKey, v *bpf.MacvlanPod) {
		all[MacvlanKey{Parent: int(k.Parent), MAC: k.Mac}] = Macvlan{
			Netns: v.Netns, IPv4: v.Ipv4.Addr(), IPv6: v.Ipv6.Addr(), Interface: int(v.Ifindex), HostMAC: v.HostMac,
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read macvlan devices: %w", err)
	}
	return all, nil
}

// Sync makes the table equal to want, writing only differences, and returns how many entries it changed.
func (t Macvlans) Sync(want map[MacvlanKey]Macvlan) (int, error) {
	have, err := t.All()
	if err != nil {
		return 0, err
	}
	set, del := table.Diff(have, want)
	for k, v := range set {
		if e := t.m.Put(k.key(), v.value()); e != nil {
			err = errors.Join(err, fmt.Errorf("set macvlan device %s on device %d: %w", k.MAC, k.Parent, e))
		}
	}
	for _, k := range del {
		if e := t.m.Delete(k.key()); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("delete macvlan device %s on device %d: %w", k.MAC, k.Parent, e))
		}
	}
	return len(set) + len(del), err
}

func (k MacvlanKey) key() bpf.MacvlanKey { return bpf.MacvlanKey{Parent: uint32(k.Parent), Mac: k.MAC} }

func (m Macvlan) value() bpf.MacvlanPod {
	v := bpf.MacvlanPod{Netns: m.Netns, Ifindex: uint32(m.Interface), HostMac: m.HostMAC}
	if m.IPv4.IsValid() {
		v.Ipv4 = bpf.AddressOf(m.IPv4)
	}
	if m.IPv6.IsValid() {
		v.Ipv6 = bpf.AddressOf(m.IPv6)
	}
	return v
}
