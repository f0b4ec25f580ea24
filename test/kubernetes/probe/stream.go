package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// chunk is the size of a stream's write in bytes; at one each millisecond this makes 65 Mbit/s in each direction,
	// which leaves CPU time for the other loads.
	chunk    = 8 << 10
	chunkGap = time.Millisecond
)

// stream is one long-lived TCP connection. Its content depends on the offset, so that missing, duplicate or corrupt
// bytes are detected.
type stream struct {
	progress
	address string
}

func newStream(address string) *stream {
	return &stream{progress{state: loadReport{Name: "stream to " + address + ", KB"}}, address}
}

func (s *stream) run(ctx context.Context) {
	conn, err := dialFirst(ctx, "tcp", s.address)
	if err != nil {
		s.fail(err)
		return
	}
	defer conn.Close()
	sent := make(chan int64, 1)
	go func() { sent <- s.send(ctx, conn.(*net.TCPConn)) }()
	received := s.receive(conn)
	if n := <-sent; n != received {
		s.fail(fmt.Errorf("%d bytes sent, %d came back", n, received))
	}
}

// fill writes the content of a stream at this offset.
func fill(buffer []byte, offset int64) {
	for i := 0; i < len(buffer); i += 8 {
		binary.BigEndian.PutUint64(buffer[i:], uint64(offset+int64(i)))
	}
}

func (s *stream) send(ctx context.Context, conn *net.TCPConn) (sent int64) {
	buffer := make([]byte, chunk)
	for ctx.Err() == nil {
		fill(buffer, sent)
		_ = conn.SetWriteDeadline(time.Now().Add(answerTime))
		n, err := conn.Write(buffer)
		sent += int64(n)
		if err != nil {
			s.fail(fmt.Errorf("after %d bytes: %w", sent, err))
			return sent
		}
		time.Sleep(chunkGap)
	}
	if err := conn.CloseWrite(); err != nil {
		s.fail(err)
	}
	return sent
}

func (s *stream) receive(conn net.Conn) (received int64) {
	got, want := make([]byte, chunk), make([]byte, chunk)
	last := time.Now()
	for {
		_ = conn.SetReadDeadline(time.Now().Add(answerTime))
		_, err := io.ReadFull(conn, got)
		if err == io.EOF {
			return received
		}
		if err != nil {
			s.fail(fmt.Errorf("after %d bytes: %w", received, err))
			return received
		}
		fill(want, received)
		if !bytes.Equal(got, want) {
			s.fail(fmt.Errorf("content is wrong after byte %d", received))
		}
		received += chunk
		now := time.Now()
		s.done(chunk>>10, now.Sub(last))
		last = now
	}
}
