package lb

import (
	"math/rand/v2"
	"time"
)

// grace is how long an unreferenced entry stays in a map: a program that read the old reference may still follow it.
// Programs run for microseconds.
const grace = time.Second

// interned assigns ids to immutable contents: equal contents share an id while in use, and a process never reuses an
// id. Ids start at random: sockets keep the ids of sets for minutes, including those of deleted tables.
type interned struct {
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

func newInterned() *interned {
	return &interned{byContent: map[string]*item{}, byID: map[uint32]*item{}, strange: map[uint32]bool{}, next: rand.Uint32()}
}

// use adds a user to the item of a content. The caller writes an item that is not written yet.
func (t *interned) use(content []byte, entries int) *item {
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
func (t *interned) adopt(id uint32, content string, entries int) {
	it := &item{id: id, content: content, entries: entries, written: true}
	if _, ok := t.byContent[content]; !ok {
		t.byContent[content] = it
	}
	t.byID[id] = it
	t.avoid(id)
	t.idle = append(t.idle, it)
}

// avoid reserves an id.
func (t *interned) avoid(id uint32) { t.strange[id] = true }

// again adds a user to the item of an id, if it exists.
func (t *interned) again(id uint32) {
	if it := t.byID[id]; it != nil {
		it.users++
	}
}

// leave removes one user.
func (t *interned) leave(id uint32, now time.Time) {
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
func (t *interned) forget(it *item) {
	delete(t.byID, it.id)
	if t.byContent[it.content] == it {
		delete(t.byContent, it.content)
	}
}

// due removes and returns the items without users for longer than grace.
func (t *interned) due(now time.Time) []*item {
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
