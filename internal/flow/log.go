package flow

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrClosed says that there are no more records.
var ErrClosed = errors.New("flows end: the agent stops")

// Log keeps the last records. It allocates memory as records come. Its methods are safe for concurrent use and never
// wait for followers.
type Log struct {
	mu   sync.Mutex
	size int
	// ring has record n at index n modulo size, for all kept records below next.
	ring      []Record
	next      uint64
	closed    bool
	followers map[*Follower]struct{}
}

// NewLog makes a log of size records, at least one.
func NewLog(size int) *Log {
	return &Log{size: max(size, 1), followers: map[*Follower]struct{}{}}
}

// Add adds records and evicts the oldest ones.
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

// wake notifies followers. The caller holds the lock.
func (l *Log) wake() {
	for f := range l.followers {
		select {
		case f.woken <- struct{}{}:
		default: // a notification is pending
		}
	}
}

// first is the number of the oldest kept record.
func (l *Log) first() uint64 { return l.next - uint64(len(l.ring)) }

func (l *Log) at(n uint64) *Record { return &l.ring[n%uint64(l.size)] }

// Last gives the newest n records that match the filter, oldest first; all if n is 0.
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

// Kept gives the number of records, and the time of the oldest.
func (l *Log) Buffered() (n int, oldest time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) == 0 {
		return 0, time.Time{}
	}
	return len(l.ring), l.at(l.first()).Time
}

// Close ends all followers: there are no more records.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake()
}

// None makes Follow give no past records.
const None = -1

// Follow gives the newest matching records, as Last does, and a follower for later ones. With None it gives the
// follower only. The caller closes it.
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

// Follower gives the records of a log as they come. A slow follower loses records that the log evicts; nothing waits
// for it.
type Follower struct {
	log    *Log
	filter Filter
	next   uint64
	woken  chan struct{}
}

// batch is how many records a follower checks while it holds the log's lock.
const batch = 512

// Next waits for matching records. missed is how many records were evicted before the follower saw them. Errors:
// ErrClosed at the end of the log, the context's when it ends.
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

// look takes a batch of new records.
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

// Close ends the follower.
func (f *Follower) Close() {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	delete(f.log.followers, f)
}
