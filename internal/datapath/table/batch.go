// Package table has what the packages of the datapath's tables share: batch reads and writes, counting, comparison,
// generation numbers and the error of a full map.
package table

import (
	"errors"
	"math"

	"github.com/cilium/ebpf"
)

// BatchSize is the number of entries that one system call reads or writes.
const BatchSize = 4096

// readSize is the batch size of repeated reads: it bounds the garbage that each read leaves. The first batch is
// smaller, since many tables have few entries.
const (
	readSize      = 512
	readSizeFirst = 64
)

// Writes are entries to write into a map, in order.
type Writes[K, V any] struct {
	M      *ebpf.Map
	Keys   []K
	values []V
}

func (w *Writes[K, V]) Add(key K, value V) {
	w.Keys, w.values = append(w.Keys, key), append(w.values, value)
}

// Do writes the entries and returns how many of them, from the first on, were written.
func (w *Writes[K, V]) Do() (done int, err error) {
	for done < len(w.Keys) {
		end := min(done+BatchSize, len(w.Keys))
		n, err := w.M.BatchUpdate(w.Keys[done:end], w.values[done:end], nil)
		if err != nil {
			return done + n, err
		}
		done = end
	}
	return done, nil
}

// Delete deletes entries and returns how many it deleted. Missing entries are no error.
func Delete[K any](m *ebpf.Map, keys []K) (deleted int, err error) {
	for _, key := range keys {
		switch e := m.Delete(key); {
		case e == nil:
			deleted++
		case !errors.Is(e, ebpf.ErrKeyNotExist):
			err = errors.Join(err, e)
		}
	}
	return deleted, err
}

// Read calls visit for every entry. It may or may not see entries that are added or deleted meanwhile; it sees all
// others.
func Read[K, V any](m *ebpf.Map, visit func(*K, *V)) error {
	_, err := ReadUpTo(m, math.MaxInt, visit)
	return err
}

// ReadUpTo is Read that stops after more than `most` entries. It reports whether it has seen all.
func ReadUpTo[K, V any](m *ebpf.Map, most int, visit func(*K, *V)) (all bool, err error) {
	var keys []K
	var values []V
	var cursor ebpf.MapBatchCursor
	for size, seen := uint32(readSizeFirst), 0; seen <= most; size = readSize {
		// The kernel returns whole buckets. A bucket rarely has more than ten entries and cannot have more than the
		// map.
		if size = min(m.MaxEntries(), size); len(keys) < int(size) {
			keys, values = make([]K, size), make([]V, size)
		}
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !end {
			return false, err
		}
		for i := range n {
			visit(&keys[i], &values[i])
		}
		if end {
			return true, nil
		}
		seen += n
	}
	return false, nil
}
