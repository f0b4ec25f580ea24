package fwd

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Uplink is a device that leads to external hosts.
type Uplink struct {
	// IPv4 and IPv6 are the masquerade addresses; the zero Addr if the device has none.
	IPv4, IPv6 netip.Addr
	MAC        MAC
	// MTU in bytes, without the link-layer header.
	MTU int
}

// Uplinks is the table of uplinks by interface index. The agent is its only writer.
type Uplinks struct {
	m          *ebpf.Map
	generation *table.Generation
	// owed: flow cache entries may be older than the table.
	owed *bool
}

// NewUplinks returns the table on its map.
func NewUplinks(m *bpf.Maps, g *table.Generation) Uplinks { return Uplinks{m.Uplinks, g, new(bool)} }

// All returns the table.
func (t Uplinks) All() (map[int]Uplink, error) {
	all := map[int]Uplink{}
	err := table.Read(t.m, func(k *uint32, v *bpf.Uplink) {
		all[int(*k)] = Uplink{IPv4: v.Ipv4.Addr(), IPv6: v.Ipv6.Addr(), MAC: v.Mac, MTU: int(v.Mtu)}
	})
	if err != nil {
		return nil, fmt.Errorf("read uplinks: %w", err)
	}
	return all, nil
}

// Sync makes the table equal to want, writing only differences, and returns how many entries it changed.
func (t Uplinks) Sync(want map[int]Uplink) (int, error) {
	have, err := t.All()
	if err != nil {
		return 0, err
	}
	set, del := table.Diff(have, want)
	for ifindex, u := range set {
		if e := t.m.Put(uint32(ifindex), u.value()); e != nil {
			err = errors.Join(err, fmt.Errorf("set uplink %d: %w", ifindex, e))
		}
	}
	for _, ifindex := range del {
		if e := t.m.Delete(uint32(ifindex)); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("delete uplink %d: %w", ifindex, e))
		}
	}
	if *t.owed = *t.owed || len(set)+len(del) > 0; *t.owed { // to_pod caches the sources that a device may carry
		e := t.generation.Advance()
		*t.owed = e != nil
		err = errors.Join(err, e)
	}
	return len(set) + len(del), err
}

func (u Uplink) value() bpf.Uplink {
	v := bpf.Uplink{Mac: u.MAC, Mtu: uint16(min(u.MTU, 1<<16-1))}
	if u.IPv4.IsValid() {
		v.Ipv4 = bpf.AddressOf(u.IPv4)
	}
	if u.IPv6.IsValid() {
		v.Ipv6 = bpf.AddressOf(u.IPv6)
	}
	return v
}
