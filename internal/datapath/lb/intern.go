package lb

import (
	"math/rand/v2"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// grace is how long an unreferenced entry stays in a map: a program that read the old reference may still follow it.
// Programs run for microseconds.
const grace = time.Second

// interned are immutable contents in a map, each kept once. Equal contents share an id while in use, and a process never
// reuses an id. Ids start at random: sockets keep the ids of sets for minutes, including those of deleted tables.
type interned[K, V any] struct {
	m    *ebpf.Map
	name string
	// key is the key of entry number `index` of a content, and idOf the id in a key.
	key  func(id, index uint32) K
	idOf func(K) uint32
	// encode gives the map entries of a content.
	encode func(content string) []V

	byContent map[string]*item
	byID      map[uint32]*item
	next      uint32
	strange   map[uint32]bool // ids that may still be referenced
	idle      []*item         // unused at some time
}

// item is one content.
type item struct {
	id      uint32
	content string
	// entries is how many map entries it takes.
	entries int
	// written: all of them are in the map.
	written bool
	users   int
	// since is when its last user left.
	since time.Time
}

// clear forgets everything but the map.
func (t *interned[K, V]) clear() {
	t.byContent, t.byID, t.strange, t.idle = map[string]*item{}, map[uint32]*item{}, map[uint32]bool{}, nil
	t.next = rand.Uint32()
}

// write writes the items that are not in the map yet and returns the number of entries. They are unreferenced, so if the
// map is full, none stays.
func (t *interned[K, V]) write(items []*item) (int, error) {
	w := table.Writes[K, V]{M: t.m}
	for _, it := range items {
		for i, v := range t.encode(it.content) {
			w.Add(t.key(it.id, uint32(i)), v)
		}
	}
	done, err := w.Do()
	if err != nil {
		_, cleared := table.Delete(t.m, w.Keys[:done])
		return 0, table.FullOr(t.name, t.m, err, cleared)
	}
	for _, it := range items {
		it.written = true
	}
	return done, nil
}

// sweep deletes the items unused for longer than grace.
func (t *interned[K, V]) sweep(now time.Time) (deleted int, err error) {
	var keys []K
	for _, it := range t.due(now) {
		for i := range it.entries {
			keys = append(keys, t.key(it.id, uint32(i)))
		}
	}
	return table.Delete(t.m, keys)
}

// remove deletes the entries of these ids, which no content has.
func (t *interned[K, V]) remove(ids map[uint32]bool) (deleted int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	var keys []K
	err = table.Read(t.m, func(k *K, _ *V) {
		if ids[t.idOf(*k)] {
			keys = append(keys, *k)
		}
	})
	if err != nil {
		return 0, err
	}
	return table.Delete(t.m, keys)
}

// use adds a user to the item of a content. The caller writes an item that is not written yet.
func (t *interned[K, V]) use(content []byte, entries int) *item {
	it, ok := t.byContent[string(content)]
	if !ok {
		for t.next == 0 || t.byID[t.next] != nil || t.strange[t.next] {
			t.next++
		}
		it = &item{id: t.next, content: string(content), entries: entries}
		t.next++
		t.byContent[it.content], t.byID[it.id] = it, it
	}
	it.users++
	return it
}

// adopt adds an item of an earlier agent, without users. If two ids have one content, the first is shared.
func (t *interned[K, V]) adopt(id uint32, content string, entries int) {
	it := &item{id: id, content: content, entries: entries, written: true}
	if _, ok := t.byContent[content]; !ok {
		t.byContent[content] = it
	}
	t.byID[id] = it
	t.avoid(id)
	t.idle = append(t.idle, it)
}

// avoid reserves an id.
func (t *interned[K, V]) avoid(id uint32) { t.strange[id] = true }

// again adds a user to the item of an id, if it exists.
func (t *interned[K, V]) again(id uint32) {
	if it := t.byID[id]; it != nil {
		it.users++
	}
}

// leave removes one user.
func (t *interned[K, V]) leave(id uint32, now time.Time) {
	it := t.byID[id]
	if it == nil {
		return
	}
	if it.users--; it.users == 0 {
		it.since = now
		t.idle = append(t.idle, it)
	}
}

// forget removes an item.
func (t *interned[K, V]) forget(it *item) {
	delete(t.byID, it.id)
	if t.byContent[it.content] == it {
		delete(t.byContent, it.content)
	}
}

// due removes and returns the items without users for longer than grace.
func (t *interned[K, V]) due(now time.Time) []*item {
	var due, later []*item
	for _, it := range t.idle {
		switch {
		case it.users > 0 || t.byID[it.id] != it: // used again, or listed twice
		case now.Sub(it.since) >= grace:
			t.forget(it)
			due = append(due, it)
		default:
			later = append(later, it)
		}
	}
	t.idle = later
	return due
}
