package flow

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrClosed says that there will be no more records.
var ErrClosed = errors.New("flows end: the agent stops")

// Log keeps the last records. Memory is taken as they come. Its methods may be called from several goroutines, and none of
// them waits for those who watch.
type Log struct {
	mu   sync.Mutex
	size int
	// ring has record n at n modulo size; those below next, as far as they are kept, are there.
	ring      []Record
	next      uint64
	closed    bool
	followers map[*Follower]struct{}
}

// NewLog makes a log of this many records, at least one.
func NewLog(size int) *Log {
	return &Log{size: max(size, 1), followers: map[*Follower]struct{}{}}
}

// Add adds records, of which the oldest ones give way.
func (l *Log) Add(records ...Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		if len(l.ring) < l.size {
			l.ring = append(l.ring, r)
		} else {
			l.ring[l.next%uint64(l.size)] = r
		}
		l.next++
	}
	l.wake()
}

// wake tells followers to look. It must be called with the lock.
func (l *Log) wake() {
	for f := range l.followers {
		select {
		case f.woken <- struct{}{}:
		default: // it has not looked since the last time
		}
	}
}

// first is the number of the oldest record that is kept.
func (l *Log) first() uint64 { return l.next - uint64(len(l.ring)) }

func (l *Log) at(n uint64) *Record { return &l.ring[n%uint64(l.size)] }

// Last gives the newest records that the filter chooses, the oldest of them first: all if n is 0.
func (l *Log) Last(f Filter, n int) []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last(f, n)
}

func (l *Log) last(f Filter, n int) []Record {
	start := l.first()
	for i, found := l.next, 0; i > start && n > 0; i-- {
		if f.Chooses(l.at(i - 1)) {
			if found++; found == n {
				start = i - 1
			}
		}
	}
	var all []Record
	for i := start; i < l.next; i++ {
		if r := l.at(i); f.Chooses(r) {
			all = append(all, *r)
		}
	}
	return all
}

// Kept says how many records there are, and when the oldest was made.
func (l *Log) Kept() (n int, oldest time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) == 0 {
		return 0, time.Time{}
	}
	return len(l.ring), l.at(l.first()).Time
}

// Close ends following: there will be no more records.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake()
}

// None of the past, for Follow.
const None = -1

// Follow gives the newest records that the filter chooses, as Last does, and a follower for those that come after them; with None only
// that. The caller closes it.
func (l *Log) Follow(f Filter, n int) ([]Record, *Follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	follower := &Follower{log: l, filter: f, next: l.next, woken: make(chan struct{}, 1)}
	l.followers[follower] = struct{}{}
	if n == None {
		return nil, follower
	}
	return l.last(f, n), follower
}

// Follower gives the records of a log as they come. A slow one loses what the log gives up meanwhile; nobody waits for it.
type Follower struct {
	log    *Log
	filter Filter
	next   uint64
	woken  chan struct{}
}

// batch is how many records a follower looks at with the log's lock held.
const batch = 512

// Next waits for records that the filter chooses. Missed is how many records were given up before the follower has looked at them.
// Errors: ErrClosed when there will be no more, the context's when it has ended.
func (f *Follower) Next(ctx context.Context) (records []Record, missed uint64, err error) {
	for {
		records, missed, more, closed := f.look()
		switch {
		case len(records) > 0 || missed > 0:
			return records, missed, nil
		case more:
			continue
		case closed:
			return nil, 0, ErrClosed
		}
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-f.woken:
		}
	}
}

// look takes a batch of what has come.
func (f *Follower) look() (records []Record, missed uint64, more, closed bool) {
	l := f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.first(); f.next < first {
		missed = first - f.next
		f.next = first
	}
	end := min(l.next, f.next+batch)
	for ; f.next < end; f.next++ {
		if r := l.at(f.next); f.filter.Chooses(r) {
			records = append(records, *r)
		}
	}
	return records, missed, f.next < l.next, l.closed
}

// Close gives the follower up.
func (f *Follower) Close() {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	delete(f.log.followers, f)
}
