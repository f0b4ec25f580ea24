package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
)

// chunk is the size of a write in bytes. One a millisecond is 262 Mbit/s, which leaves CPU time for the rest.
const chunk = 32 << 10

var chunkGap = testenv.Patience(time.Millisecond)

// stream is one long TCP connection whose content encodes its offset, so that the receiver finds missing, repeated and
// changed bytes.
type stream struct {
	name     string
	stopping atomic.Bool
	sent     int64
	received atomic.Int64
	// pause is the longest time between two reads.
	pause    time.Duration
	sender   chan error
	receiver chan error
}

// startStream opens a connection between two namespaces and starts to send.
func startStream(name string, from, to testbed.Netns, address netip.Addr) (*stream, error) {
	client, server, err := connect(from, to, address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s := &stream{name: name, sender: make(chan error, 1), receiver: make(chan error, 1)}
	go func() { s.sender <- s.send(client) }()
	go func() { s.receiver <- s.receive(server) }()
	return s, nil
}

// connect makes a TCP connection from one namespace to another.
func connect(from, to testbed.Netns, address netip.Addr) (client, server net.Conn, err error) {
	var l net.Listener
	err = to.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, nil, err
	}
	err = from.Do(func() (err error) {
		client, err = net.DialTimeout("tcp", l.Addr().String(), patience)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	server, err = l.Accept()
	return client, server, err
}

// fill fills the buffer with the content of a stream at this offset: markers and offsets.
func fill(buffer []byte, offset int64) {
	const each = len(capture.Marker) + 8
	for i := 0; i < len(buffer); i += each {
		copy(buffer[i:], capture.Marker)
		binary.BigEndian.PutUint64(buffer[i+len(capture.Marker):], uint64(offset+int64(i)))
	}
}

func (s *stream) send(conn net.Conn) error {
	defer conn.Close()
	buffer := make([]byte, chunk)
	for !s.stopping.Load() {
		fill(buffer, s.sent)
		// Longer than any test interrupts a path: a stalled stream fails.
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		n, err := conn.Write(buffer)
		s.sent += int64(n)
		if err != nil {
			return err
		}
		time.Sleep(chunkGap)
	}
	return nil
}

func (s *stream) receive(conn net.Conn) error {
	defer conn.Close()
	got, want := make([]byte, chunk), make([]byte, chunk)
	last := time.Now()
	for {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err := io.ReadFull(conn, got)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now()
		s.pause, last = max(s.pause, now.Sub(last)), now
		fill(want, s.received.Load())
		if string(got) != string(want) {
			return fmt.Errorf("wrong content after byte %d", s.received.Load())
		}
		s.received.Add(chunk)
	}
}

// finish ends the stream and returns an error if bytes were lost or changed.
func (s *stream) finish() error {
	s.stopping.Store(true)
	if err := errors.Join(<-s.sender, <-s.receiver); err != nil {
		return fmt.Errorf("%s: after %d bytes: %w", s.name, s.received.Load(), err)
	}
	if s.sent != s.received.Load() {
		return fmt.Errorf("%s: %d bytes sent, %d received", s.name, s.sent, s.received.Load())
	}
	return nil
}

// progress waits until the receiver has this many more bytes.
func (s *stream) progress(bytes int64) error {
	goal, begin := s.received.Load()+bytes, time.Now()
	for s.received.Load() < goal {
		if time.Since(begin) > patience {
			return fmt.Errorf("%s: stalled at byte %d", s.name, s.received.Load())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func (s *stream) String() string {
	return fmt.Sprintf("%s: %d MB, no byte lost, longest pause %s", s.name, s.received.Load()>>20, s.pause.Round(time.Millisecond))
}
