package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// flow is traffic that continues until finish.
type flow interface {
	// finish ends the traffic, with an error if something was lost.
	finish() error
	// String summarizes it in one line.
	fmt.Stringer
}

// traffic is all traffic of a test.
type traffic struct {
	t       *testing.T
	flows   []flow
	streams []*stream
}

// startTraffic starts traffic from the first pod of each pair to the second, over each address family: a stream, requests
// over UDP and TCP, and new connections.
func (c *cluster) startTraffic(pairs ...[2]*testbed.Pod) *traffic {
	c.t.Helper()
	tr := &traffic{t: c.t}
	for _, pair := range pairs {
		for _, address := range pair[1].Addresses {
			tr.start(c.lab, pair[0], pair[1], address)
		}
	}
	tr.waitProgress()
	return tr
}

func (tr *traffic) start(lab *testbed.Lab, from, to *testbed.Pod, address netip.Addr) {
	tr.t.Helper()
	name := func(kind string) string {
		return fmt.Sprintf("%s %s→%s %s", kind, from.Name, to.Name, family(address))
	}
	a, b := from.Netns, to.Netns
	s, err := startStream(name("stream"), a, b, address)
	tr.add(s, err)
	tr.streams = append(tr.streams, s)
	for _, protocol := range []string{"udp", "tcp"} {
		r, err := startRequests(name(protocol+" requests"), protocol, a, b, address)
		tr.add(r, err)
	}
	n, err := startConnections(name("connections"), a, b, address)
	tr.add(n, err)
}

func (tr *traffic) add(f flow, err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.flows = append(tr.flows, f)
}

// waitProgress waits until each stream has sent a few more megabytes, which takes about a tenth of a second.
func (tr *traffic) waitProgress() {
	tr.t.Helper()
	const enough = 4 << 20
	for _, s := range tr.streams {
		if err := s.progress(enough); err != nil {
			tr.t.Fatal(err)
		}
	}
}

// finish ends the traffic and fails the test if something was lost.
func (tr *traffic) finish() {
	tr.t.Helper()
	for _, f := range tr.flows {
		if err := f.finish(); err != nil {
			tr.t.Errorf("lost: %v", err)
			continue
		}
		tr.t.Log(f)
	}
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

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

// pods are two pods on the first node and one on the second.
type pods struct{ a, b, far *testbed.Pod }

func (c *cluster) addPods() pods {
	c.t.Helper()
	return pods{c.addPod(c.nodes[0], "a"), c.addPod(c.nodes[0], "b"), c.addPod(c.nodes[1], "far")}
}

// pairs are a pair on one node and a pair on two nodes.
func (p pods) pairs() [][2]*testbed.Pod {
	return [][2]*testbed.Pod{{p.a, p.b}, {p.a, p.far}}
}

// TestTrafficOutlivesAgents kills, restarts, stops and upgrades the agents of both nodes under traffic. No connection, no
// byte and no request is lost.
func TestTrafficOutlivesAgents(t *testing.T) {
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			before, after := current(t), newer(t)
			c := up(t, testbed.Options{IPv6: true}, "--routing", routing)
			traffic := c.startTraffic(c.addPods().pairs()...)

			for _, n := range c.nodes {
				c.kill(n)
			}
			traffic.waitProgress() // without agents
			for _, n := range c.nodes {
				c.start(n, before, "--routing", routing)
				c.waitReady(n)
			}
			for _, n := range c.nodes {
				c.restart(n, after, "--routing", routing)
				if got := c.status(n).Version; got != netlab.Newer {
					t.Errorf("agent of %s is version %s after the upgrade", n.Name, got)
				}
			}
			for _, n := range c.nodes { // downgrade
				if err := c.terminate(n); err != nil {
					t.Errorf("stop agent of %s: %v", n.Name, err)
				}
				c.start(n, before, "--routing", routing)
				c.waitReady(n)
			}
			traffic.finish()
		})
	}
}

// TestChangeOfRoutingUnderTraffic changes --routing and back under traffic.
func TestChangeOfRoutingUnderTraffic(t *testing.T) {
	c := up(t, testbed.Options{IPv6: true})
	traffic := c.startTraffic(c.addPods().pairs()...)
	for _, routing := range []string{"kernel", "ebpf"} {
		for _, n := range c.nodes {
			c.restart(n, current(t), "--routing", routing)
			traffic.waitProgress() // first with both modes, then with the new one
		}
	}
	traffic.finish()
}
