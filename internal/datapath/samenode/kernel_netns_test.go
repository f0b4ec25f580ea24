package samenode_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// fault is something that TCP does and that the kernel does not do for data from a socket of the same node. The test
// documents it: it fails when a kernel behaves differently, and docs/same-node.md has a row for each.
type fault struct {
	name string
	// try uses two connected sockets, and says what happened.
	try func(c, s int) (string, error)
	// packets and sockets are what happens with TCP, and from socket to socket.
	packets, sockets string
}

var faults = []fault{
	{"splice", trySplice, "5 bytes", "resource temporarily unavailable, readable"},
	{"splice at the end", trySpliceEnd, "5 bytes", "end of file, 5 bytes lost"},
	{"MSG_WAITALL", tryWaitAll, "10 bytes", "5 bytes"},
	{"MSG_OOB", tryOutOfBand, "out of band", "in band"},
	{"MSG_ZEROCOPY", tryZeroCopy, "completed", "never completed"},
	{"SO_RCVLOWAT", tryLowWater, "not readable", "readable"},
	{"close with unread data", tryReset, "connection reset by peer", "end of file"},
	{"TCP_INFO", tryInfo, "5 bytes sent", "0 bytes sent"},
}

// What the kernel does with data from a socket of the same node.
func TestKernelFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t, fixtures.EbpfRouting)
			for _, meets := range []bool{false, true} {
				want := f.packets
				if l.join(t); meets {
					l.join(t, l.A1, l.A2)
					want = f.sockets
				}
				c, s := connect(t, l.A1, l.A2, 4)
				got, err := f.try(raw(t, c), raw(t, s))
				if err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Errorf("sockets meet %t: %s, want %s", meets, got, want)
				}
				if n := l.counts(t).Messages; meets != (n > 0) {
					t.Errorf("%d messages went from socket to socket", n)
				}
			}
		})
	}
}

// raw is a blocking descriptor of the socket.
func raw(t *testing.T, c *net.TCPConn) int {
	t.Helper()
	f, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	c.Close() // the file is the only reference
	if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
		t.Fatal(err)
	}
	// Otherwise splice(2) waits for ever.
	if err := unix.SetsockoptTimeval(int(f.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		t.Fatal(err)
	}
	return int(f.Fd())
}

// send sends, and waits until the receiver can read.
func send(c, s int, text string, flags int) error {
	if err := unix.Sendto(c, []byte(text), flags, nil); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	time.Sleep(20 * time.Millisecond)
	return nil
}

// readable polls for a moment.
func readable(s int) bool {
	fds := []unix.PollFd{{Fd: int32(s), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 200)
	return err == nil && n == 1
}

// splice moves data from a socket to a pipe.
func splice(s int) (int64, error) {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		return 0, err
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	return unix.Splice(s, nil, pipe[1], nil, 100, 0)
}

func trySplice(c, s int) (string, error) {
	if err := send(c, s, "hello", 0); err != nil {
		return "", err
	}
	n, err := splice(s)
	if err != nil {
		if readable(s) {
			return err.Error() + ", readable", nil
		}
		return err.Error(), nil
	}
	return fmt.Sprintf("%d bytes", n), nil
}

func trySpliceEnd(c, s int) (string, error) {
	if err := send(c, s, "hello", 0); err != nil {
		return "", err
	}
	if err := unix.Shutdown(c, unix.SHUT_WR); err != nil {
		return "", err
	}
	time.Sleep(20 * time.Millisecond)
	n, err := splice(s)
	if err != nil {
		return err.Error(), nil
	}
	if n > 0 {
		return fmt.Sprintf("%d bytes", n), nil
	}
	lost, err := unix.Read(s, make([]byte, 100))
	return fmt.Sprintf("end of file, %d bytes lost", lost), err
}

func tryWaitAll(c, s int) (string, error) {
	if err := send(c, s, "hello", 0); err != nil {
		return "", err
	}
	go func() {
		time.Sleep(100 * time.Millisecond)
		_ = send(c, s, "again", 0)
	}()
	n, _, err := unix.Recvfrom(s, make([]byte, 10), unix.MSG_WAITALL)
	return fmt.Sprintf("%d bytes", n), err
}

func tryOutOfBand(c, s int) (string, error) {
	if err := send(c, s, "!", unix.MSG_OOB); err != nil {
		return "", err
	}
	fds := []unix.PollFd{{Fd: int32(s), Events: unix.POLLIN | unix.POLLPRI}}
	if _, err := unix.Poll(fds, 200); err != nil {
		return "", err
	}
	if fds[0].Revents&unix.POLLPRI != 0 {
		return "out of band", nil
	}
	return "in band", nil
}

func tryZeroCopy(c, s int) (string, error) {
	if err := unix.SetsockoptInt(c, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1); err != nil {
		return "", err
	}
	if err := send(c, s, "hello", unix.MSG_ZEROCOPY); err != nil {
		return "", err
	}
	if _, err := unix.Read(s, make([]byte, 10)); err != nil {
		return "", err
	}
	for range 20 {
		_, _, _, _, err := unix.Recvmsg(c, nil, make([]byte, 100), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err == nil {
			return "completed", nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return "", err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return "never completed", nil
}

func tryLowWater(c, s int) (string, error) {
	if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 10); err != nil {
		return "", err
	}
	if err := send(c, s, "hello", 0); err != nil {
		return "", err
	}
	if readable(s) {
		return "readable", nil
	}
	return "not readable", nil
}

func tryReset(c, s int) (string, error) {
	if err := send(c, s, "hello", 0); err != nil {
		return "", err
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(null)
	if err := unix.Dup2(null, s); err != nil { // closes the socket
		return "", err
	}
	time.Sleep(20 * time.Millisecond)
	n, err := unix.Read(c, make([]byte, 1))
	if err != nil {
		return err.Error(), nil
	}
	if n == 0 {
		return "end of file", nil
	}
	return fmt.Sprintf("%d bytes", n), nil
}

func tryInfo(c, s int) (string, error) {
	if err := send(c, s, "hello", 0); err != nil {
		return "", err
	}
	info, err := unix.GetsockoptTCPInfo(c, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d bytes sent", info.Bytes_sent), nil
}
