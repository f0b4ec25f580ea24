package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// echo sends bytes to an echo server and expects the same ones back.
func echo(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("echo", flag.ContinueOnError)
	size := flags.Int64("bytes", 1000, "how much to send over TCP, and in each UDP packet")
	count := flags.Int("count", 1, "how many UDP packets, or TCP connections")
	patience := flags.Duration("patience", answerTime, "how long an answer may take, and a TCP connection stand still")
	ports := flags.String("ports", "", "one TCP connection from each local port of this `range`: 40000-40099")
	to, err := parse(flags, args)
	if err != nil {
		return err
	}
	protocol, address := to[0], to[1]
	// Connecting has a deadline of its own: TCP retries would hide a port that is closed for a while.
	dialer := net.Dialer{Timeout: min(2*connectTime, *patience)}
	first := 0
	if *ports != "" {
		var last int
		if _, err := fmt.Sscanf(*ports, "%d-%d", &first, &last); err != nil {
			return fmt.Errorf("-ports: %w", err)
		}
		*count = last - first + 1
	}
	once := echoStream
	if protocol == "udp" {
		once = echoPacket
	}
	for i := range *count {
		if first > 0 {
			dialer.LocalAddr = &net.TCPAddr{Port: first + i}
			dialer.Control = sharePort
		}
		conn, err := dialer.DialContext(ctx, protocol, address)
		if err != nil {
			return err
		}
		err = once(patientConn{conn, *patience}, *size)
		conn.Close()
		if err != nil {
			return fmt.Errorf("%s %s, number %d of %d: %w", protocol, address, i+1, *count, err)
		}
	}
	return nil
}

// sharePort lets a socket use a port that another socket of this pod uses towards another destination, as the kernel
// does for ephemeral ports.
func sharePort(_, _ string, conn syscall.RawConn) (err error) {
	controlErr := conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})
	return errors.Join(controlErr, err)
}

// patientConn is a connection with a timeout for each read and write.
type patientConn struct {
	net.Conn
	patience time.Duration
}

func (c patientConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c patientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// echoStream sends random bytes and reads them back at the same time.
func echoStream(conn patientConn, size int64) error {
	var seed [32]byte
	binary.NativeEndian.PutUint64(seed[:], rand.Uint64())
	sent, got := sha256.New(), sha256.New()
	writing := make(chan error, 1)
	go func() {
		source := io.TeeReader(io.LimitReader(rand.NewChaCha8(seed), size), sent)
		_, err := io.Copy(conn, source)
		writing <- errors.Join(err, conn.Conn.(*net.TCPConn).CloseWrite())
	}()
	n, err := io.Copy(got, conn)
	if err := errors.Join(err, <-writing); err != nil {
		return fmt.Errorf("%d of %d bytes came back: %w", n, size, err)
	}
	if n != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		return fmt.Errorf("%d bytes came back, want %d, the same ones", n, size)
	}
	return nil
}

// echoPacket sends one packet and waits for its echo. It does not retransmit: a lost packet is an error.
func echoPacket(conn patientConn, size int64) error {
	packet, got := make([]byte, size), make([]byte, 64<<10)
	for i := range packet {
		packet[i] = byte(rand.Uint32())
	}
	if _, err := conn.Write(packet); err != nil {
		return err
	}
	n, err := conn.Read(got)
	if err != nil {
		return err
	}
	if !bytes.Equal(packet, got[:n]) {
		return fmt.Errorf("%d bytes came back, want %d, the same ones", n, size)
	}
	return nil
}
