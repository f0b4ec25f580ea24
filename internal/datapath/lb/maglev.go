package lb

import (
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// maglevBlock is how many bytes of a table one entry of the map has.
const maglevBlock = len(bpf.MaglevBlock{}.Entries)

// maglevTables are the tables of consistent hashing in the map `maglev`. A table depends on the backends' addresses and on
// its size alone, so the ports of a Service share one; it is never changed.
func maglevTables(m *ebpf.Map) interned[bpf.MaglevKey, bpf.MaglevBlock] {
	return interned[bpf.MaglevKey, bpf.MaglevBlock]{
		m: m, name: bpf.MapMaglev,
		key:  func(id, index uint32) bpf.MaglevKey { return bpf.MaglevKey{Table: id, Block: index} },
		idOf: func(k bpf.MaglevKey) uint32 { return k.Table },
		encode: func(content string) []bpf.MaglevBlock {
			size, addresses := unpackTable(content)
			return blocksOf(service.Maglev(addresses, size), maglevWidth(len(addresses)))
		},
	}
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

// recoverTables keeps the tables that a Service refers to and deletes the others. wanted has their contents by id. Tables
// are not computed again: they follow from the content by a function that must never change.
func (s *Services) recoverTables(wanted map[uint32]string) (deleted int, err error) {
	t := &s.tables
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
	return t.remove(orphans)
}
