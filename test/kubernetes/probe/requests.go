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

// openRequests has the time of each unreplied request, by its number.
type openRequests struct {
	mu    sync.Mutex
	since map[uint64]time.Time
}

// requests is a loop of requests over one connection, TCP or UDP. UDP is not retransmitted, so every lost packet is a
// failed request.
func (l *load) requests(ctx context.Context, protocol string) error {
	conn, err := dialFirst(ctx, l.address) // over UDP, a missing server goes unnoticed
	if err == nil && protocol == "udp" {
		conn.Close()
		conn, err = net.Dial("udp", l.address)
	}
	if err != nil {
		return err
	}
	open := &openRequests{since: map[uint64]time.Time{}}
	var listening sync.WaitGroup
	listening.Go(func() { l.listen(conn, open) })
	l.request(ctx, conn, open)
	for open.pending() > 0 {
		time.Sleep(requestGap)
	}
	conn.Close()
	listening.Wait()
	for _, gap := range open.gaps() {
		l.fail(gap)
	}
	return nil
}

// request sends requests until the context ends, or over TCP until an error.
func (l *load) request(ctx context.Context, conn net.Conn, open *openRequests) {
	message := make([]byte, requestSize)
	next := time.Now()
	for number := uint64(0); ctx.Err() == nil; number++ {
		for open.pending() >= window && ctx.Err() == nil {
			time.Sleep(requestGap)
			next = time.Now()
		}
		binary.BigEndian.PutUint64(message, number)
		open.mu.Lock()
		open.since[number] = time.Now()
		open.mu.Unlock()
		if _, err := conn.Write(message); err != nil {
			l.fail(fmt.Errorf("request %d: %w", number, err))
			if isTCP(conn) {
				return
			}
		}
		next = next.Add(requestGap)
		time.Sleep(time.Until(next))
	}
}

// listen takes the replies until the connection is closed, or over TCP until an error.
func (l *load) listen(conn net.Conn, open *openRequests) {
	message := make([]byte, requestSize)
	for {
		_, err := io.ReadFull(conn, message)
		if err == nil {
			l.fail(l.take(binary.BigEndian.Uint64(message), open))
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		l.fail(err)
		if isTCP(conn) {
			return
		}
		time.Sleep(requestGap) // an ICMP error: the next reply may come
	}
}

func isTCP(conn net.Conn) bool {
	_, is := conn.(*net.TCPConn)
	return is
}

// take takes the reply to a request.
func (l *load) take(number uint64, open *openRequests) error {
	open.mu.Lock()
	sent, is := open.since[number]
	delete(open.since, number)
	open.mu.Unlock()
	if !is {
		return fmt.Errorf("answer to request %d, which is not open", number)
	}
	took := time.Since(sent)
	l.done(1, took)
	if took > answerTime {
		return fmt.Errorf("request %d was answered after %s", number, took)
	}
	return nil
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

// gaps names the requests without a reply, consecutive ones together.
func (o *openRequests) gaps() (gaps []error) {
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
