package lb

import (
	"encoding/binary"
	"net/netip"
	"time"

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

// backendSets are the sets in the map `backends`, each kept once. A set is never changed.
type backendSets struct {
	*interned
	m *ebpf.Map
}

// write writes the sets that are not in the map yet and returns the number of entries. They are unreferenced, so if the
// map is full, none stays.
func (t backendSets) write(sets []*item) (int, error) {
	w := table.Writes[bpf.BackendKey, bpf.Backend]{M: t.m}
	for _, s := range sets {
		for i, b := range unpack(s.content) {
			w.Add(bpf.BackendKey{Set: s.id, Index: uint32(i)}, bpf.BackendOf(b))
		}
	}
	done, err := w.Do()
	if err != nil {
		_, cleared := table.Delete(t.m, w.Keys[:done])
		return 0, table.FullOr(bpf.MapBackends, t.m, err, cleared)
	}
	for _, s := range sets {
		s.written = true
	}
	return done, nil
}

// sweep deletes the sets unused for longer than grace.
func (t backendSets) sweep(now time.Time) (deleted int, err error) {
	var keys []bpf.BackendKey
	for _, s := range t.due(now) {
		for i := range s.entries {
			keys = append(keys, bpf.BackendKey{Set: s.id, Index: uint32(i)})
		}
	}
	return table.Delete(t.m, keys)
}

// recover reads the sets of the map. Partial sets, of an agent that was killed, are deleted: they are unreferenced.
func (t backendSets) recover() (deleted int, err error) {
	type found struct {
		content []byte
		entries int
	}
	sets := map[uint32]*found{}
	err = table.Read(t.m, func(k *bpf.BackendKey, v *bpf.Backend) {
		s := sets[k.Set]
		if s == nil {
			s = &found{}
			sets[k.Set] = s
		}
		s.entries++
		at := int(k.Index) * packedBackend
		if k.Index > 1<<16 {
			return // not ours; the count will not fit
		}
		if missing := at + packedBackend - len(s.content); missing > 0 {
			s.content = append(s.content, make([]byte, missing)...)
		}
		pack(s.content[:at], []netip.AddrPort{netip.AddrPortFrom(v.Address.Addr(), bpf.NetworkOrder(v.Port))})
	})
	if err != nil {
		return 0, err
	}
	broken := map[uint32]bool{}
	for id, s := range sets {
		if len(s.content) != s.entries*packedBackend {
			broken[id] = true
			t.avoid(id)
			continue
		}
		t.adopt(id, string(s.content), s.entries)
	}
	if len(broken) == 0 {
		return 0, nil
	}
	var keys []bpf.BackendKey
	err = table.Read(t.m, func(k *bpf.BackendKey, _ *bpf.Backend) {
		if broken[k.Set] {
			keys = append(keys, *k)
		}
	})
	if err != nil {
		return 0, err
	}
	return table.Delete(t.m, keys)
}
