package instructions

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// port is the server's.
const port = 7

// serve accepts one connection at the address and sends back each byte that it receives, until the client closes it.
func serve(address netip.Addr) error {
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	if err := unix.Bind(listener, &unix.SockaddrInet4{Port: port, Addr: address.As4()}); err != nil {
		return fmt.Errorf("bind to %s port %d: %w", address, port, err)
	}
	if err := unix.Listen(listener, 1); err != nil {
		return fmt.Errorf("listen at %s port %d: %w", address, port, err)
	}
	conn, _, err := unix.Accept(listener)
	if err != nil {
		return fmt.Errorf("accept a connection at %s port %d: %w", address, port, err)
	}
	var buffer [1]byte
	for transfer(unix.SYS_READ, conn, &buffer) == nil {
		if err := transfer(unix.SYS_WRITE, conn, &buffer); err != nil {
			return fmt.Errorf("send a reply: %w", err)
		}
	}
	return nil
}

// connect connects to the server, which may not listen yet.
func connect(server netip.Addr) (conn int, err error) {
	for range 600 {
		if conn, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
			return 0, fmt.Errorf("open a socket: %w", err)
		}
		if err = unix.Connect(conn, &unix.SockaddrInet4{Port: port, Addr: server.As4()}); err == nil {
			return conn, nil
		}
		unix.Close(conn)
		time.Sleep(100 * time.Millisecond)
	}
	return 0, fmt.Errorf("connect to %s port %d: %w", server, port, err)
}

// request sends a byte and waits for the reply, n times.
func request(conn, n int) error {
	var buffer [1]byte
	for range n {
		if err := transfer(unix.SYS_WRITE, conn, &buffer); err != nil {
			return fmt.Errorf("send a request: %w", err)
		}
		if err := transfer(unix.SYS_READ, conn, &buffer); err != nil {
			return fmt.Errorf("wait for a reply: %w", err)
		}
	}
	return nil
}

var errClosed = errors.New("the other end closed the connection")

// transfer reads or writes one byte. Go's scheduler is not told: its work would count.
func transfer(call uintptr, conn int, buffer *[1]byte) error {
	for {
		n, errno := rawTransfer(call, conn, buffer)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return errno
		case n == 0:
			return errClosed
		default:
			return nil
		}
	}
}

// clock is the number of instructions so far, where BEELINE_INSTRUCTIONS says that the CPU's clock is one.
func clock() (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &t); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return t.Nano(), nil
}
