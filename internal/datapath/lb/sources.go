package lb

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// serviceSources is the map of who may use the Services that do not answer everybody.
type serviceSources struct {
	m *ebpf.Map
	// has is what the map holds, by the number of the Service.
	has map[uint32]map[netip.Prefix]bool
}

func (t *serviceSources) recover() error {
	t.has = map[uint32]map[netip.Prefix]bool{}
	var key bpf.SourceKey
	var value uint8
	it := t.m.Iterate()
	for it.Next(&key, &value) {
		t.note(bpf.HostOrder(key.Service), bpf.RouteKey{PrefixLen: key.PrefixLen - 32, Address: key.Address}.Prefix())
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read map %s: %w", bpf.MapServiceSources, err)
	}
	return nil
}

func (t *serviceSources) note(id uint32, p netip.Prefix) {
	if t.has[id] == nil {
		t.has[id] = map[netip.Prefix]bool{}
	}
	t.has[id][p] = true
}

// allow adds the prefixes of a Service that are missing, and says how many.
func (t *serviceSources) allow(id uint32, prefixes []netip.Prefix) (added int, err error) {
	for _, p := range distinctSources(prefixes) {
		if t.has[id][p] {
			continue
		}
		if err := t.m.Put(sourceKeyOf(id, p), uint8(1)); err != nil {
			return added, table.FullOr(bpf.MapServiceSources, t.m, err, nil)
		}
		t.note(id, p)
		added++
	}
	return added, nil
}

// keep deletes the other prefixes of a Service, and says how many.
func (t *serviceSources) keep(id uint32, prefixes []netip.Prefix) (deleted int, err error) {
	if len(t.has[id]) == 0 {
		return 0, nil
	}
	wanted := map[netip.Prefix]bool{}
	for _, p := range distinctSources(prefixes) {
		wanted[p] = true
	}
	for p := range maps.Clone(t.has[id]) {
		if wanted[p] {
			continue
		}
		if e := t.m.Delete(sourceKeyOf(id, p)); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("delete source range %s: %w", p, e))
			continue
		}
		delete(t.has[id], p)
		deleted++
	}
	if len(t.has[id]) == 0 {
		delete(t.has, id)
	}
	return deleted, err
}

func sourceKeyOf(id uint32, p netip.Prefix) bpf.SourceKey {
	k := bpf.RouteKeyOf(p)
	return bpf.SourceKey{PrefixLen: 32 + k.PrefixLen, Service: bpf.HostOrder(id), Address: k.Address}
}

// distinctSources gives each prefix once. An IPv6 prefix that would hold the form that IPv4 addresses have in maps, as ::/0
// does, is cut into those around it.
func distinctSources(prefixes []netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	seen := map[netip.Prefix]bool{}
	add := func(p netip.Prefix) {
		if !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	for _, p := range prefixes {
		p = p.Masked()
		if p.Addr().Is4() || p.Bits() >= bpf.MappedIPv4.Bits() || !p.Contains(bpf.MappedIPv4.Addr()) {
			add(p)
			continue
		}
		for bits := p.Bits() + 1; bits <= bpf.MappedIPv4.Bits(); bits++ {
			// The half of the prefix of one bit less in which the mapped addresses are not.
			a := bpf.MappedIPv4.Addr().As16()
			a[(bits-1)/8] ^= 0x80 >> ((bits - 1) % 8)
			add(netip.PrefixFrom(netip.AddrFrom16(a), bits).Masked())
		}
	}
	return all
}

// of gives the prefixes of a Service in their order.
func (t *serviceSources) of(id uint32) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(t.has[id]), netip.Prefix.Compare)
}
