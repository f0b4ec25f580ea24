package lb

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// maglevBlock is how many bytes of a table one entry of the map has.
const maglevBlock = len(bpf.MaglevBlock{}.Entries)

// maglevTables are the tables of consistent hashing in the map `maglev`. A table depends on the backends' addresses and on
// its size alone, so the ports of a Service share one; it is never changed.
type maglevTables struct {
	*interned
	m *ebpf.Map
}

// maglevWidth is how many bytes an entry of a table takes that has so many backends.
func maglevWidth(backends int) int {
	if backends > 1<<8 {
		return 2
	}
	return 1
}

func maglevBlocks(size, backends int) int {
	return (size*maglevWidth(backends) + maglevBlock - 1) / maglevBlock
}

// packTable appends the content by which tables are told apart: the size, and the addresses in their order.
func packTable(to []byte, size int, backends []netip.AddrPort) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(size))
	for _, b := range backends {
		a := b.Addr().As16()
		to = append(to, a[:]...)
	}
	return to
}

func unpackTable(content string) (size int, addresses []netip.Addr) {
	size = int(binary.BigEndian.Uint32([]byte(content[:4])))
	for rest := content[4:]; len(rest) >= 16; rest = rest[16:] {
		addresses = append(addresses, netip.AddrFrom16([16]byte([]byte(rest[:16]))).Unmap())
	}
	return size, addresses
}

// write computes and writes the tables that are not in the map yet and returns the number of entries. They are
// unreferenced, so if the map is full, none stays.
func (t maglevTables) write(tables []*item) (int, error) {
	w := table.Writes[bpf.MaglevKey, bpf.MaglevBlock]{M: t.m}
	for _, table := range tables {
		size, addresses := unpackTable(table.content)
		for i, block := range blocksOf(service.Maglev(addresses, size), maglevWidth(len(addresses))) {
			w.Add(bpf.MaglevKey{Table: table.id, Block: uint32(i)}, block)
		}
	}
	done, err := w.Do()
	if err != nil {
		_, cleared := table.Delete(t.m, w.Keys[:done])
		return 0, table.FullOr(bpf.MapMaglev, t.m, err, cleared)
	}
	for _, table := range tables {
		table.written = true
	}
	return done, nil
}

// blocksOf cuts a table into entries of the map.
func blocksOf(table []uint16, width int) []bpf.MaglevBlock {
	perBlock := maglevBlock / width
	blocks := make([]bpf.MaglevBlock, (len(table)+perBlock-1)/perBlock)
	for i, backend := range table {
		to := blocks[i/perBlock].Entries[i%perBlock*width:]
		if width == 1 {
			to[0] = byte(backend)
		} else {
			binary.LittleEndian.PutUint16(to, backend)
		}
	}
	return blocks
}

// sweep deletes the tables unused for longer than grace.
func (t maglevTables) sweep(now time.Time) (deleted int, err error) {
	var keys []bpf.MaglevKey
	for _, table := range t.due(now) {
		for i := range table.entries {
			keys = append(keys, bpf.MaglevKey{Table: table.id, Block: uint32(i)})
		}
	}
	return table.Delete(t.m, keys)
}

// recover keeps the tables that a Service refers to and deletes the others. wanted has their contents by id. Tables
// are not computed again: they follow from the content by a function that must never change.
func (t maglevTables) recover(wanted map[uint32]string) (deleted int, err error) {
	found := map[uint32]int{}
	err = table.Read(t.m, func(k *bpf.MaglevKey, _ *bpf.MaglevBlock) { found[k.Table]++ })
	if err != nil {
		return 0, err
	}
	orphans := map[uint32]bool{}
	for id, blocks := range found {
		t.avoid(id)
		content, ok := wanted[id]
		if ok {
			size, addresses := unpackTable(content)
			ok = blocks == maglevBlocks(size, len(addresses))
		}
		if !ok {
			orphans[id] = true
			continue
		}
		t.adopt(id, content, blocks)
	}
	if len(orphans) == 0 {
		return 0, nil
	}
	var keys []bpf.MaglevKey
	err = table.Read(t.m, func(k *bpf.MaglevKey, _ *bpf.MaglevBlock) {
		if orphans[k.Table] {
			keys = append(keys, *k)
		}
	})
	if err != nil {
		return 0, err
	}
	return table.Delete(t.m, keys)
}
