package table

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Count counts the entries of a map in batches. Arrays are always full. It returns 0 for socket storage and for ring
// buffers.
func Count(m *ebpf.Map) (int, error) {
	switch m.Type() {
	case ebpf.SkStorage, ebpf.RingBuf:
		return 0, nil
	case ebpf.Array, ebpf.PerCPUArray:
		return int(m.MaxEntries()), nil
	}
	n, err := countInBatches(m)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		return countByKeys(m) // this kernel has no batch operations for the map type
	}
	return n, err
}

// countInBatches reads keys and values in batches and discards them.
func countInBatches(m *ebpf.Map) (n int, err error) {
	bytes := reflect.TypeFor[byte]()
	size := int(min(m.MaxEntries(), BatchSize))
	keys := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(m.KeySize()), bytes)), size, size).Interface()
	perEntry := 1
	if m.Type() == ebpf.PerCPUHash || m.Type() == ebpf.LRUCPUHash {
		if perEntry, err = ebpf.PossibleCPU(); err != nil {
			return 0, fmt.Errorf("count possible CPUs: %w", err)
		}
	}
	values := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(m.ValueSize()), bytes)), size*perEntry, size*perEntry).Interface()
	var cursor ebpf.MapBatchCursor
	for {
		got, err := m.BatchLookup(&cursor, keys, values, nil)
		n += got
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// countByKeys makes a system call for each entry.
func countByKeys(m *ebpf.Map) (n int, err error) {
	var key any // nil is before the first
	for {
		next, err := m.NextKeyBytes(key)
		if errors.Is(err, ebpf.ErrKeyNotExist) || (err == nil && next == nil) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		key = next
		n++
	}
}
