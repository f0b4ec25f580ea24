package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// requestGap makes a thousand requests each second, if replies are fast enough.
	requestGap = time.Millisecond
	// window is the maximum of open requests. It keeps the server's queue below its socket buffer, so that a process
	// that waits for a CPU loses nothing: only the network can.
	window = 20
	// requestSize is that of a request and its reply, in bytes; the first eight are its number.
	requestSize = 64
)

// requests is a loop of requests over one connection, TCP or UDP. UDP is not retransmitted, so every lost packet is a
// failed request.
type requests struct {
	progress
	protocol, address string
	open              openRequests
}

// openRequests has the time of each unreplied request, by its number.
type openRequests struct {
	mu    sync.Mutex
	since map[uint64]time.Time
}

func newRequests(protocol, address string) *requests {
	return &requests{
		progress: progress{state: loadReport{Name: protocol + " requests to " + address}},
		protocol: protocol, address: address,
		open: openRequests{since: map[uint64]time.Time{}},
	}
}

func (r *requests) run(ctx context.Context) {
	conn, err := dialFirst(ctx, "tcp", r.address) // over UDP, a missing server goes unnoticed
	if err == nil && r.protocol == "udp" {
		conn.Close()
		conn, err = net.Dial("udp", r.address)
	}
	if err != nil {
		r.fail(err)
		return
	}
	listening := make(chan struct{})
	go func() { r.listen(conn); close(listening) }()
	r.ask(ctx, conn)
	for begin := time.Now(); r.open.count() > 0 && time.Since(begin) < answerTime; {
		time.Sleep(requestGap)
	}
	conn.Close()
	<-listening
	for _, g := range r.open.gaps() {
		r.fail(g)
	}
}

func (r *requests) ask(ctx context.Context, conn net.Conn) {
	message := make([]byte, requestSize)
	next := time.Now()
	for number := uint64(0); ctx.Err() == nil; number++ {
		for r.open.pending() >= window && ctx.Err() == nil {
			time.Sleep(requestGap)
			next = time.Now()
		}
		binary.BigEndian.PutUint64(message, number)
		r.open.add(number)
		if _, err := conn.Write(message); err != nil {
			r.fail(fmt.Errorf("request %d: %w", number, err))
			if r.protocol == "tcp" {
				return
			}
		}
		next = next.Add(requestGap)
		time.Sleep(time.Until(next))
	}
}

func (r *requests) listen(conn net.Conn) {
	message := make([]byte, requestSize)
	for {
		_, err := io.ReadFull(conn, message)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			r.fail(err)
			if r.protocol == "tcp" {
				return
			}
			time.Sleep(requestGap) // an ICMP error: the next reply may come
			continue
		}
		r.take(binary.BigEndian.Uint64(message))
	}
}

func (r *requests) take(number uint64) {
	asked, open := r.open.remove(number)
	if !open {
		r.fail(fmt.Errorf("answer to request %d, which is not open", number))
		return
	}
	took := time.Since(asked)
	r.done(1, took)
	if took > answerTime {
		r.fail(fmt.Errorf("request %d was answered after %s", number, took))
	}
}

func (o *openRequests) add(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since[number] = time.Now()
}

func (o *openRequests) remove(number uint64) (since time.Time, was bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	since, was = o.since[number]
	delete(o.since, number)
	return since, was
}

// pending counts the open requests that may still be answered in time.
func (o *openRequests) pending() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, since := range o.since {
		if time.Since(since) < answerTime {
			n++
		}
	}
	return n
}

func (o *openRequests) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.since)
}

// gaps names the requests without a reply, consecutive ones together.
func (o *openRequests) gaps() (gaps []error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	numbers := slices.Sorted(maps.Keys(o.since))
	for len(numbers) > 0 {
		n := 1
		for n < len(numbers) && numbers[n] == numbers[n-1]+1 {
			n++
		}
		gaps = append(gaps, fmt.Errorf("%d requests without an answer, from number %d at %s on", n, numbers[0], o.since[numbers[0]].Format(clock)))
		numbers = numbers[n:]
	}
	return gaps
}
