package policy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// policyTable is a policy map with its content: K and V are the types of package policy, MK and MV those of the map.
type policyTable[K, V comparable, MK, MV any] struct {
	name string
	m    *ebpf.Map
	has  map[K]V
	// set is the map that was written last; nil if the content differs from it. complete says that the last write
	// left nothing out.
	set      map[K]V
	complete bool

	key     func(K) MK
	value   func(V) MV
	keyOf   func(MK) K
	valueOf func(MV) V
	// order is the order of writing; deleting reverses it. Nil means any order.
	order func(a, b K) int
}

// load reads the map into has.
func (t *policyTable[K, V, MK, MV]) load() (err error) {
	t.has, err = t.all()
	return err
}

// all reads the map.
func (t *policyTable[K, V, MK, MV]) all() (map[K]V, error) {
	all := map[K]V{}
	err := table.Read(t.m, func(k *MK, v *MV) { all[t.keyOf(*k)] = t.valueOf(*v) })
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", t.name, err)
	}
	return all, nil
}

// holds reports, without comparing entries, whether the map is known to have the content of want.
func (t *policyTable[K, V, MK, MV]) holds(want map[K]V) bool { return sameMap(t.set, want) }

// sameMap reports whether two maps are the same object.
func sameMap[K comparable, V any](a, b map[K]V) bool {
	return a != nil && b != nil && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// written is the result of writing a table.
type written[K any] struct {
	changed, added int
	// missing are the keys whose entries are missing or outdated.
	missing []K
	err     error
}

// write writes the entries that differ and deletes none. If the map is full the error is a *FullError, and entries
// that exist are updated nevertheless.
func (t *policyTable[K, V, MK, MV]) write(want map[K]V) (w written[K]) {
	if t.holds(want) {
		return w
	}
	t.set = nil
	var differ []K
	for k, v := range want {
		if old, there := t.has[k]; !there || old != v {
			differ = append(differ, k)
		}
	}
	if t.order != nil {
		slices.SortFunc(differ, t.order)
	}
	left := t.put(differ, want, &w)
	if t.complete = len(left) == 0; t.complete {
		return w
	}
	there := func(k K) bool { _, there := t.has[k]; return there }
	changed := slices.DeleteFunc(slices.Clone(left), func(k K) bool { return !there(k) })
	w.missing = append(slices.DeleteFunc(left, there), t.put(changed, want, &w)...)
	return w
}

// put writes entries in order until one fails and returns the left.
func (t *policyTable[K, V, MK, MV]) put(keys []K, want map[K]V, w *written[K]) (left []K) {
	entries := table.Writes[MK, MV]{M: t.m}
	for _, k := range keys {
		entries.Add(t.key(k), t.value(want[k]))
	}
	done, err := entries.Do()
	if err != nil {
		w.err = errors.Join(w.err, table.FullOr(t.name, t.m, err, nil))
	}
	for _, k := range keys[:done] {
		if _, there := t.has[k]; there {
			w.changed++
		} else {
			w.added++
		}
		t.has[k] = want[k]
	}
	return keys[done:]
}

// trim deletes unwanted entries, after write, and returns how many.
func (t *policyTable[K, V, MK, MV]) trim(want map[K]V) (deleted int, err error) {
	if t.holds(want) {
		return 0, nil
	}
	var unwanted []K
	for k := range t.has {
		if _, wanted := want[k]; !wanted {
			unwanted = append(unwanted, k)
		}
	}
	if t.order != nil {
		slices.SortFunc(unwanted, func(a, b K) int { return t.order(b, a) })
	}
	for deleted < len(unwanted) {
		n, err := t.remove(unwanted[deleted:min(deleted+table.BatchSize, len(unwanted))])
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("delete from map %s: %w", t.name, err)
		}
	}
	if t.complete {
		t.set = want
	}
	return deleted, nil
}

// remove deletes entries from the first on, as many as one system call can, and returns how many.
func (t *policyTable[K, V, MK, MV]) remove(unwanted []K) (int, error) {
	keys := make([]MK, len(unwanted))
	for i, k := range unwanted {
		keys[i] = t.key(k)
	}
	n, err := deleteBatch(t.m, keys)
	for _, k := range unwanted[:n] {
		delete(t.has, k)
	}
	return n, err
}

// deleteBatch deletes entries from the first on, as many as one system call can, and returns how many. A missing
// entry is no error.
func deleteBatch[K any](m *ebpf.Map, keys []K) (int, error) {
	n, err := m.BatchDelete(keys, nil)
	if errors.Is(err, ebpf.ErrKeyNotExist) && n < len(keys) {
		return n + 1, nil
	}
	return n, err
}
