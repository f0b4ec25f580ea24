package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/handshake"
)

// transferBytes fill many packets, so that a path that carries small packets only fails.
const transferBytes = 512 << 10

const (
	// connectTime is the timeout of a TCP handshake.
	connectTime = 10 * time.Second
	// transferTime is the timeout of a transfer; both ends may wait long for a CPU.
	transferTime = time.Minute
)

// reach checks that one pod reaches another over each address family: a TCP connection carries full packets and has
// the pod's own address.
func (c *cluster) reach(from, to *testbed.Pod) error {
	if len(to.Addresses) == 0 {
		return fmt.Errorf("pod %s has no address", to.Name)
	}
	for i, address := range to.Addresses {
		seen, err := transfer(from.Netns, to.Netns, address)
		if err != nil {
			return fmt.Errorf("%s to %s at %s: %w", from.Name, to.Name, address, err)
		}
		if i < len(from.Addresses) && seen != from.Addresses[i] {
			return fmt.Errorf("%s sees %s, which is %s, as %s", to.Name, from.Name, from.Addresses[i], seen)
		}
	}
	return nil
}

// transfer sends transferBytes from one namespace to another and returns the source address that the receiver sees.
func transfer(from, to testbed.Netns, address netip.Addr) (seen netip.Addr, err error) {
	var l net.Listener
	err = to.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		return err
	})
	if err != nil {
		return seen, err
	}
	defer l.Close()
	deadline := time.Now().Add(transferTime)
	if err := l.(*net.TCPListener).SetDeadline(deadline); err != nil {
		return seen, err
	}
	sent := make(chan error, 1)
	go func() {
		sent <- from.Do(func() error {
			conn, err := net.DialTimeout("tcp", l.Addr().String(), connectTime)
			if err != nil {
				l.Close() // ends Accept
				return err
			}
			defer conn.Close()
			_ = conn.SetDeadline(deadline)
			message := make([]byte, transferBytes)
			fill(message, 0)
			_, err = conn.Write(message)
			return err
		})
	}()
	conn, err := l.Accept()
	if err != nil {
		return seen, errors.Join(err, <-sent)
	}
	defer conn.Close()
	_ = conn.SetDeadline(deadline)
	seen = conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	n, err := io.Copy(io.Discard, conn)
	if err == nil && n != transferBytes {
		err = fmt.Errorf("%d of %d bytes arrived", n, transferBytes)
	}
	return seen, errors.Join(err, <-sent)
}

// TestEverybodyReachesEverybody connects all pairs of pods, and of nodes and pods, with all families and routing
// modes.
func TestEverybodyReachesEverybody(t *testing.T) {
	t.Parallel()
	families := []struct {
		name  string
		ipv6  bool
		ipv4  bool
		count int
	}{{"IPv4", false, true, 1}, {"IPv6", true, false, 1}, {"dual stack", true, true, 2}}
	for _, f := range families {
		for _, routing := range []string{"ebpf", "kernel"} {
			t.Run(f.name+"/"+routing, func(t *testing.T) {
				programs := current(t)
				c := newCluster(t, testbed.Options{IPv6: f.ipv6, Nodes: 3})
				for _, n := range c.nodes {
					if !f.ipv4 {
						n.object.Spec.PodCIDRs = n.object.Spec.PodCIDRs[1:]
						c.writeNode(n)
					}
				}
				for _, n := range c.nodes {
					c.start(n, programs, "--routing", routing)
				}
				var pods []*testbed.Pod
				for i, n := range c.nodes {
					c.waitReady(n)
					pods = append(pods, c.addPod(n, fmt.Sprintf("pod-%d", i)))
				}
				pods = append(pods, c.addPod(c.nodes[0], "neighbour"))
				c.reachAll(pods, f.count)
			})
		}
	}
}

// reachAll connects every ordered pair of pods, and every node and pod in both directions.
func (c *cluster) reachAll(pods []*testbed.Pod, families int) {
	c.t.Helper()
	for _, from := range pods {
		if len(from.Addresses) != families {
			c.t.Fatalf("%s has addresses %v, want %d", from.Name, from.Addresses, families)
		}
		for _, to := range pods {
			if from == to {
				continue
			}
			if err := c.reach(from, to); err != nil {
				c.t.Error(err)
			}
		}
		for _, n := range c.nodes {
			if err := c.reach(asPod(n, from), from); err != nil {
				c.t.Errorf("node %s: %v", n.Name, err)
			}
			if err := c.reach(withoutSource(from), asPod(n, from)); err != nil {
				c.t.Errorf("%s to node %s: %v", from.Name, n.Name, err)
			}
		}
	}
}

// asPod returns a node as a peer of this pod, with addresses of the pod's families.
func asPod(n *node, peer *testbed.Pod) *testbed.Pod {
	as := &testbed.Pod{Name: n.Name, Node: n.Name, Netns: n.Netns}
	for _, a := range n.Addresses {
		for _, b := range peer.Addresses {
			if a.Addr().Is4() == b.Is4() {
				as.Addresses = append(as.Addresses, a.Addr())
			}
		}
	}
	return as
}

// withoutSource returns the pod without addresses, so that reach does not check the source.
func withoutSource(p *testbed.Pod) *testbed.Pod {
	return &testbed.Pod{Name: p.Name, Node: p.Node, Netns: p.Netns}
}

// connections opens a TCP connection, sends a request and closes it, up to a hundred times a second.
type connections struct {
	name     string
	server   net.Listener
	stopping atomic.Bool
	result   chan error
	made     int
	slowest  time.Duration
}

const connectionGap = 10 * time.Millisecond

func startConnections(name string, from, to testbed.Netns, address netip.Addr) (*connections, error) {
	c := &connections{name: name, result: make(chan error, 1)}
	err := to.Do(func() (err error) {
		c.server, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go c.serve()
	go func() { c.result <- from.Do(c.repeat) }() // keeps its thread in the namespace
	return c, nil
}

func (c *connections) serve() {
	for {
		conn, err := c.server.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn) // the client checks the reply
		}()
	}
}

func (c *connections) repeat() error {
	message := make([]byte, requestSize)
	for !c.stopping.Load() {
		begin := time.Now()
		if err := c.once(message); err != nil {
			return fmt.Errorf("%s: connection %d: %w", c.name, c.made, err)
		}
		c.made++
		c.slowest = max(c.slowest, time.Since(begin))
		time.Sleep(connectionGap)
	}
	return nil
}

func (c *connections) once(message []byte) error {
	conn, err := net.DialTimeout("tcp", c.server.Addr().String(), connectTime)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := handshake.SentOnce(conn.(*net.TCPConn)); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(message); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, message)
	return err
}

func (c *connections) finish() error {
	c.stopping.Store(true)
	err := <-c.result
	c.server.Close()
	return err
}

func (c *connections) String() string {
	return fmt.Sprintf("%s: %d connections, the slowest %s", c.name, c.made, c.slowest.Round(10*time.Microsecond))
}
