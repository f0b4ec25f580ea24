package lb

import (
	"math/rand/v2"
	"time"
)

// grace is how long what nothing refers to any more stays in a map: a program that has read the reference before it was
// replaced may be about to follow it. Programs run for microseconds.
const grace = time.Second

// interned keeps immutable contents by number: the same content has the same number for as long as somebody uses it, and
// numbers are not given twice by one process. They begin at a random place: sockets remember sets by their number for minutes, also
// those of tables that are no more.
type interned struct {
	byContent map[string]*item
	byID      map[uint32]*item
	next      uint32
	strange   map[uint32]bool // numbers that somebody may remember
	idle      []*item         // nobody used them at some time
}

// item is one content.
type item struct {
	id      uint32
	content string
	// entries is how many entries of the map it takes.
	entries int
	// written says that all of them are there.
	written bool
	users   int
	// since is when the last user went.
	since time.Time
}

func newInterned() *interned {
	return &interned{byContent: map[string]*item{}, byID: map[uint32]*item{}, strange: map[uint32]bool{}, next: rand.Uint32()}
}

// use gives the item of a content another user. An item that is not written yet is the caller's to write.
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

// adopt takes up what an earlier agent wrote, without a user. Where two numbers have one content the first one is shared.
func (t *interned) adopt(id uint32, content string, entries int) {
	it := &item{id: id, content: content, entries: entries, written: true}
	if _, ok := t.byContent[content]; !ok {
		t.byContent[content] = it
	}
	t.byID[id] = it
	t.avoid(id)
	t.idle = append(t.idle, it)
}

// avoid keeps a number from being given.
func (t *interned) avoid(id uint32) { t.strange[id] = true }

// again gives the item of a number another user, if there is one.
func (t *interned) again(id uint32) {
	if it := t.byID[id]; it != nil {
		it.users++
	}
}

// leave takes one user away.
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

// forget drops an item.
func (t *interned) forget(it *item) {
	delete(t.byID, it.id)
	if t.byContent[it.content] == it {
		delete(t.byContent, it.content)
	}
}

// due forgets the items that had no user for the time of grace, and gives them.
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
