package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestTrafficNoticesLoss checks the traffic of other tests: UDP requests fail when the link is down for a moment, and
// TCP requests and connections when it stays down.
func TestTrafficNoticesLoss(t *testing.T) {
	const enough = time.Second // timeout for replies that do not come
	c := up(t, testbed.Options{})
	p := c.addPods()
	from, to, address := p.a.Netns, p.far.Netns, p.far.Addresses[0]
	udp, err := startRequests("udp", "udp", from, to, address)
	if err != nil {
		t.Fatal(err)
	}
	udp.asksMore(t)
	setUplink(t, c.nodes[1], false)
	udp.asksMore(t)
	setUplink(t, c.nodes[1], true)
	if err := udp.finishWithin(enough); err == nil || !strings.Contains(err.Error(), "without an answer") {
		t.Errorf("UDP requests while the link was down for a moment: %v", err)
	}

	eventually(t, func() error { return c.reach(p.a, p.far) })
	tcp, err := startRequests("tcp", "tcp", from, to, address)
	if err != nil {
		t.Fatal(err)
	}
	connections, err := startConnections("connections", from, to, address)
	if err != nil {
		t.Fatal(err)
	}
	setUplink(t, c.nodes[1], false)
	tcp.asksMore(t)
	if err := tcp.finishWithin(enough); err == nil || !strings.Contains(err.Error(), "without an answer") {
		t.Errorf("TCP requests while the link is down: %v", err)
	}
	if err := connections.finish(); err == nil {
		t.Error("connections succeed while the link is down")
	}
}

// asksMore waits until the loop has sent a request that began after the call.
func (r *requests) asksMore(t *testing.T) {
	t.Helper()
	const more = 2
	sent := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.sent)
	}
	before := sent()
	eventually(t, func() error {
		if n := sent(); n < before+more {
			return fmt.Errorf("%s: %d requests sent, before %d", r.name, n, before)
		}
		return nil
	})
}
