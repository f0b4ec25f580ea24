package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestTrafficNoticesLoss proves the instrument of other tests: a wire that is down for a moment makes requests
// over UDP fail, and one that stays down the others, too.
func TestTrafficNoticesLoss(t *testing.T) {
	const enough = time.Second // for answers that do not come
	c := up(t, testbed.Options{})
	p := c.addPods()
	from, to, address := c.lab.Place(p.a), c.lab.Place(p.far), p.far.Addresses[0]
	udp, err := startRequests("udp", "udp", from, to, address)
	if err != nil {
		t.Fatal(err)
	}
	udp.asksMore(t)
	setUplink(t, c.nodes[1], false)
	udp.asksMore(t)
	setUplink(t, c.nodes[1], true)
	if err := udp.finishWithin(enough); err == nil || !strings.Contains(err.Error(), "without an answer") {
		t.Errorf("UDP requests while the wire was down for a moment: %v", err)
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
		t.Errorf("TCP requests while the wire is down: %v", err)
	}
	if err := connections.finish(); err == nil {
		t.Error("connections can be made while the wire is down")
	}
}

// asksMore waits until the loop has begun to ask after it was called: the request before may have been on its way already.
func (r *requests) asksMore(t *testing.T) {
	t.Helper()
	const more = 2
	asked := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.asked)
	}
	before := asked()
	eventually(t, func() error {
		if n := asked(); n < before+more {
			return fmt.Errorf("%s: %d requests were asked, and %d before", r.name, n, before)
		}
		return nil
	})
}
