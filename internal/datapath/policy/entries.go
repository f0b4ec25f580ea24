package policy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// policyTable is a map of policies with what it holds: K and V as package policy has them, MK and MV as the map does.
type policyTable[K, V comparable, MK, MV any] struct {
	name string
	m    *ebpf.Map
	has  map[K]V
	// set is what the map holds, as it was given; nil if it holds anything else. whole says that the last write left nothing out.
	set   map[K]V
	whole bool

	key     func(K) MK
	value   func(V) MV
	keyOf   func(MK) K
	valueOf func(MV) V
	// order is that in which entries are written; it is turned around for deleting. Nil is any.
	order func(a, b K) int
}

// remember reads what the map holds.
func (t *policyTable[K, V, MK, MV]) remember() (err error) {
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

// holds tells, without looking at what is in it, whether the map is known to hold a table.
func (t *policyTable[K, V, MK, MV]) holds(want map[K]V) bool { return sameMap(t.set, want) }

// sameMap tells whether two maps are one.
func sameMap[K comparable, V any](a, b map[K]V) bool {
	return a != nil && b != nil && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// written is what became of writing a table.
type written[K any] struct {
	changed, added int
	// missing are the keys that are not there, or not as they should be.
	missing []K
	err     error
}

// write writes the entries that differ. Others stay. The map being full is a *FullError; what needs no room is written all
// the same.
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
	rest := t.put(differ, want, &w)
	if t.whole = len(rest) == 0; t.whole {
		return w
	}
	there := func(k K) bool { _, there := t.has[k]; return there }
	changed := slices.DeleteFunc(slices.Clone(rest), func(k K) bool { return !there(k) })
	w.missing = append(slices.DeleteFunc(rest, there), t.put(changed, want, &w)...)
	return w
}

// put writes entries in their order until one fails, and gives those that are left.
func (t *policyTable[K, V, MK, MV]) put(keys []K, want map[K]V, w *written[K]) (rest []K) {
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

// trim deletes the entries that are not wanted, after write, and says how many.
func (t *policyTable[K, V, MK, MV]) trim(want map[K]V) (deleted int, err error) {
	if t.holds(want) {
		return 0, nil
	}
	var over []K
	for k := range t.has {
		if _, wanted := want[k]; !wanted {
			over = append(over, k)
		}
	}
	if t.order != nil {
		slices.SortFunc(over, func(a, b K) int { return t.order(b, a) })
	}
	for deleted < len(over) {
		n, err := t.remove(over[deleted:min(deleted+table.BatchSize, len(over))])
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("delete from map %s: %w", t.name, err)
		}
	}
	if t.whole {
		t.set = want
	}
	return deleted, nil
}

// remove deletes the first entries, as many as one system call can, and says how many.
func (t *policyTable[K, V, MK, MV]) remove(over []K) (int, error) {
	keys := make([]MK, len(over))
	for i, k := range over {
		keys[i] = t.key(k)
	}
	n, err := deleteBatch(t.m, keys)
	for _, k := range over[:n] {
		delete(t.has, k)
	}
	return n, err
}

// deleteBatch deletes the first entries, as many as one system call can, and says how many. One that is gone already is no error.
func deleteBatch[K any](m *ebpf.Map, keys []K) (int, error) {
	n, err := m.BatchDelete(keys, nil)
	if errors.Is(err, ebpf.ErrKeyNotExist) && n < len(keys) {
		return n + 1, nil
	}
	return n, err
}
