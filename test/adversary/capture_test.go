package adversary

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
)

// recording has the frames that a device receives.
type recording struct {
	name    string
	mu      sync.Mutex
	arrived sync.Cond
	frames  [][]byte
}

// startCapture starts to record. The test's cleanup stops it.
func startCapture(t *testing.T, name string, netns testbed.Netns, device string) *recording {
	t.Helper()
	c := &recording{name: name}
	c.arrived.L = &c.mu
	stop, err := capture.Start(netns, device, func(frame []byte, sent bool) {
		if sent {
			return
		}
		c.mu.Lock()
		c.frames = append(c.frames, bytes.Clone(frame))
		c.mu.Unlock()
		c.arrived.Broadcast()
	})
	if err != nil {
		t.Fatalf("capture at %s: %v", name, err)
	}
	t.Cleanup(stop)
	return c
}

// reset discards the recorded frames.
func (c *recording) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = nil
}

// find returns the first frame that matches.
func (c *recording) find(fits func([]byte) bool) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.findLocked(fits)
}

func (c *recording) findLocked(fits func([]byte) bool) []byte {
	for _, f := range c.frames {
		if fits(f) {
			return f
		}
	}
	return nil
}

var errNotSeen = errors.New("not captured")

// wait waits until a frame that matches was recorded.
func (c *recording) wait(limit time.Duration, fits func([]byte) bool) error {
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
