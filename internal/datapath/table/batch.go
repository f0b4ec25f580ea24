// Package table reads and writes maps in batches, counts and compares their entries, and numbers their states. The packages of the subjects use
// it; what they have in common, as the error of a full map, is here, too.
package table

import (
	"errors"
	"math"

	"github.com/cilium/ebpf"
)

// BatchSize is how many entries one system call reads or writes.
const BatchSize = 4096

// readSize is how many one reads where tables are read again and again: their entries are garbage after that. The first one reads fewer, as many
// tables have no more.
const (
	readSize      = 512
	readSizeFirst = 64
)

// Writes are entries to be written into a map in the order in which they came.
type Writes[K, V any] struct {
	M      *ebpf.Map
	Keys   []K
	values []V
}

func (w *Writes[K, V]) Add(key K, value V) {
	w.Keys, w.values = append(w.Keys, key), append(w.values, value)
}

// Do writes the entries and says how many of the first ones are there.
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

// Delete deletes entries; those that are not there are no error. It says how many it deleted.
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

// Read calls visit for every entry. Entries that come or go meanwhile may be missed or seen; all others are seen.
func Read[K, V any](m *ebpf.Map, visit func(*K, *V)) error {
	_, err := ReadUpTo(m, math.MaxInt, visit)
	return err
}

// ReadUpTo does so until it has seen more than some entries, and tells whether it has seen all.
func ReadUpTo[K, V any](m *ebpf.Map, most int, visit func(*K, *V)) (all bool, err error) {
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
