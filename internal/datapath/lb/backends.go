package lb

import (
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// packedBackend is the length of one backend in a content: its address as in maps, and its port in network order.
const packedBackend = 16 + 2

// pack appends the content of a set.
func pack(to []byte, all []netip.AddrPort) []byte {
	for _, b := range all {
		a := b.Addr().As16()
		to = binary.BigEndian.AppendUint16(append(to, a[:]...), b.Port())
	}
	return to
}

// unpack is the inverse of pack.
func unpack(content string) []netip.AddrPort {
	all := make([]netip.AddrPort, 0, len(content)/packedBackend)
	for ; len(content) >= packedBackend; content = content[packedBackend:] {
		a := netip.AddrFrom16([16]byte([]byte(content[:16]))).Unmap()
		all = append(all, netip.AddrPortFrom(a, uint16(content[16])<<8|uint16(content[17])))
	}
	return all
}

// backendSets are the sets in the map `backends`. A set is never changed.
func backendSets(m *ebpf.Map) interned[bpf.BackendKey, bpf.Backend] {
	return interned[bpf.BackendKey, bpf.Backend]{
		m: m, name: bpf.MapBackends,
		key:  func(id, index uint32) bpf.BackendKey { return bpf.BackendKey{Set: id, Index: index} },
		idOf: func(k bpf.BackendKey) uint32 { return k.Set },
		encode: func(content string) (all []bpf.Backend) {
			for _, b := range unpack(content) {
				all = append(all, bpf.BackendOf(b))
			}
			return all
		},
	}
}

// recoverSets reads the sets of the map. Partial sets, of an agent that was killed, are deleted: they are unreferenced.
func (s *Services) recoverSets() (deleted int, err error) {
	t := &s.sets
	type found struct {
		content []byte
		entries int
	}
	sets := map[uint32]*found{}
	err = table.Read(t.m, func(k *bpf.BackendKey, v *bpf.Backend) {
		set := sets[k.Set]
		if set == nil {
			set = &found{}
			sets[k.Set] = set
		}
		set.entries++
		at := int(k.Index) * packedBackend
		if k.Index > 1<<16 {
			return // not ours; the count will not fit
		}
		if missing := at + packedBackend - len(set.content); missing > 0 {
			set.content = append(set.content, make([]byte, missing)...)
		}
		pack(set.content[:at], []netip.AddrPort{netip.AddrPortFrom(v.Address.Addr(), bpf.NetworkOrder(v.Port))})
	})
	if err != nil {
		return 0, err
	}
	broken := map[uint32]bool{}
	for id, set := range sets {
		if len(set.content) != set.entries*packedBackend {
			broken[id] = true
			t.avoid(id)
			continue
		}
		t.adopt(id, string(set.content), set.entries)
	}
	return t.remove(broken)
}
