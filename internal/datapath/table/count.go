package table

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Count counts the entries of a map without a system call for each; arrays are always full. What the kernel keeps with sockets it
// does not count, and ring buffers have none.
func Count(m *ebpf.Map) (int, error) {
	switch m.Type() {
	case ebpf.SkStorage, ebpf.RingBuf:
		return 0, nil
	case ebpf.Array, ebpf.PerCPUArray:
		return int(m.MaxEntries()), nil
	}
	n, err := countInBatches(m)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		return countByKeys(m) // a kind of map that has no batches on this kernel
	}
	return n, err
}

// countInBatches reads keys and values and looks at neither.
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

// countByKeys takes a system call for each entry.
func countByKeys(m *ebpf.Map) (n int, err error) {
	var key any // nil asks for the first
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
