package datapath

import (
	"errors"
	"math"

	"github.com/cilium/ebpf"
)

// batchSize is how many entries one system call reads or writes.
const batchSize = 4096

// readSize is how many one reads where tables are read again and again: their entries are garbage after that. The first one reads fewer, as many
// tables have no more.
const (
	readSize      = 512
	readSizeFirst = 64
)

// writes are entries to be written into a map in the order in which they came.
type writes[K, V any] struct {
	m      *ebpf.Map
	keys   []K
	values []V
}

func (w *writes[K, V]) add(key K, value V) {
	w.keys, w.values = append(w.keys, key), append(w.values, value)
}

// do writes the entries and says how many of the first ones are there.
func (w *writes[K, V]) do() (done int, err error) {
	for done < len(w.keys) {
		end := min(done+batchSize, len(w.keys))
		n, err := w.m.BatchUpdate(w.keys[done:end], w.values[done:end], nil)
		if err != nil {
			return done + n, err
		}
		done = end
	}
	return done, nil
}

// deleteAll deletes entries; those that are not there are no error. It says how many it deleted.
func deleteAll[K any](m *ebpf.Map, keys []K) (deleted int, err error) {
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

// readAll calls visit for every entry. Entries that come or go meanwhile may be missed or seen; all others are seen.
func readAll[K, V any](m *ebpf.Map, visit func(*K, *V)) error {
	_, err := readUpTo(m, math.MaxInt, visit)
	return err
}

// readUpTo does so until it has seen more than some entries, and tells whether it has seen all.
func readUpTo[K, V any](m *ebpf.Map, most int, visit func(*K, *V)) (all bool, err error) {
	var keys []K
	var values []V
	var cursor ebpf.MapBatchCursor
	for size, seen := uint32(readSizeFirst), 0; seen <= most; size = readSize {
		// The kernel gives whole buckets; one cannot have more entries than the map, and hardly ever has more than ten.
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
