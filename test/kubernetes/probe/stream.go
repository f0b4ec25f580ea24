package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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
func (l *load) stream(ctx context.Context) error {
	conn, err := dialFirst(ctx, l.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	patient := patientConn{conn, answerTime}
	sent := make(chan int64, 1)
	go func() { sent <- l.sendStream(ctx, patient) }()
	received, err := l.receiveStream(patient)
	if n := <-sent; n != received {
		err = errors.Join(err, fmt.Errorf("%d bytes sent, %d came back", n, received))
	}
	return err
}

// fill writes the content of a stream at this offset.
func fill(buffer []byte, offset int64) {
	for i := 0; i < len(buffer); i += 8 {
		binary.BigEndian.PutUint64(buffer[i:], uint64(offset+int64(i)))
	}
}

func (l *load) sendStream(ctx context.Context, conn patientConn) (sent int64) {
	buffer := make([]byte, chunk)
	for ctx.Err() == nil {
		fill(buffer, sent)
		n, err := conn.Write(buffer)
		sent += int64(n)
		if err != nil {
			l.fail(fmt.Errorf("after %d bytes: %w", sent, err))
			return sent
		}
		time.Sleep(chunkGap)
	}
	l.fail(conn.Conn.(*net.TCPConn).CloseWrite())
	return sent
}

func (l *load) receiveStream(conn patientConn) (received int64, err error) {
	got, want := make([]byte, chunk), make([]byte, chunk)
	for last := time.Now(); ; {
		if _, err := io.ReadFull(conn, got); err == io.EOF {
			return received, nil
		} else if err != nil {
			return received, fmt.Errorf("after %d bytes: %w", received, err)
		}
		fill(want, received)
		if !bytes.Equal(got, want) {
			l.fail(fmt.Errorf("content is wrong after byte %d", received))
		}
		received += chunk
		now := time.Now()
		l.done(chunk>>10, now.Sub(last))
		last = now
	}
}
