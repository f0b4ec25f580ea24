package adversary

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// capture records the frames that a device receives.
type capture struct {
	name    string
	fd      int
	mu      sync.Mutex
	arrived sync.Cond
	frames  [][]byte
}

// maxFrame exceeds any frame, including merged ones of segmentation offload.
const maxFrame = 1 << 17

// startCapture starts to record. The test's cleanup stops it.
func startCapture(t *testing.T, name string, netns testbed.Netns, device string) *capture {
	t.Helper()
	c := &capture{name: name}
	c.arrived.L = &c.mu
	err := netns.Do(func() error {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		const all = 3 << 8 // ETH_P_ALL in network order
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
			return err
		}
		const pollTime = 100_000 // µs; bounds how long the reader takes to see that end is closed
		if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: pollTime}); err != nil {
			return err
		}
		return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	})
	if err != nil {
		t.Fatalf("capture at %s: %v", name, err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		c.read(end)
	}()
	t.Cleanup(func() {
		close(end)
		<-ended
		_ = unix.Close(c.fd)
	})
	return c
}

func (c *capture) read(end <-chan struct{}) {
	buffer := make([]byte, maxFrame)
	for {
		select {
		case <-end:
			return
		default:
		}
		n, from, err := unix.Recvfrom(c.fd, buffer, 0)
		if link, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		c.mu.Lock()
		c.frames = append(c.frames, bytes.Clone(buffer[:n]))
		c.mu.Unlock()
		c.arrived.Broadcast()
	}
}

// reset discards the recorded frames.
func (c *capture) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = nil
}

// find returns the first frame that matches.
func (c *capture) find(fits func([]byte) bool) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.findLocked(fits)
}

func (c *capture) findLocked(fits func([]byte) bool) []byte {
	for _, f := range c.frames {
		if fits(f) {
			return f
		}
	}
	return nil
}

var errNotSeen = errors.New("not captured")

// wait waits until a frame that matches was recorded.
func (c *capture) wait(limit time.Duration, fits func([]byte) bool) error {
	deadline := time.Now().Add(limit)
	wake := time.AfterFunc(limit, func() { // under the lock, so that the wakeup is not lost between the check of the clock and Wait
		c.mu.Lock()
		defer c.mu.Unlock()
		c.arrived.Broadcast()
	})
	defer wake.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.findLocked(fits) == nil {
		if time.Now().After(deadline) {
			return errNotSeen
		}
		c.arrived.Wait()
	}
	return nil
}

// has returns a predicate for frames that contain these bytes.
func has(token []byte) func([]byte) bool {
	return func(f []byte) bool { return bytes.Contains(f, token) }
}
