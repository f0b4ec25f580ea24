package e2e

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
	"github.com/beeline-cni/beeline/test/netlab"
)

// encryptingNodes are the flags of agents that encrypt what nodes send each other. Policies and flows do not matter: without them programs load in a part of the time.
func (n *node) encryptingNodes() []string {
	return n.encrypted("--encrypt-nodes", "--policy=none", "--flows=off")
}

// apiServerPort is one that nodes reach in plaintext.
const apiServerPort = 6443

// itself is a node as a pod: its own addresses.
func itself(n *node) *testbed.Pod {
	as := &testbed.Pod{Name: n.Name, Node: n.Name, Netns: n.Netns}
	for _, a := range n.Addresses {
		as.Addresses = append(as.Addresses, a.Addr())
	}
	return as
}

// announceNodes does what the agent does where there is an API server: it says in the manifest what the agent announces.
func (c *cluster) announceNodes(n *node) {
	c.t.Helper()
	c.waitStatus(n, func(s *agentapi.Status) error {
		if s.Annotations[v1alpha1.AnnotationEncryptNodes] == "" {
			return fmt.Errorf("%s announces %v", n.Name, s.Annotations)
		}
		c.annotate(n, s.Annotations)
		return nil
	})
}

// waitNodesEncrypted waits until the node encrypts what it sends itself to the others, and drops it where that is impossible.
func (c *cluster) waitNodesEncrypted(n *node, path string) {
	c.t.Helper()
	c.waitStatus(n, func(s *agentapi.Status) error {
		for _, other := range s.Nodes {
			if other.Path != path || other.Encryption == nil || !other.Encryption.Nodes {
				return fmt.Errorf("%s reaches %s by %s: %+v", n.Name, other.Name, other.Path, other.Encryption)
			}
		}
		return nil
	})
}

// ask connects to each address of a node at this port, and wants one byte back.
func ask(from, to *testbed.Pod, port uint16) error {
	const patience = 5 * time.Second
	for _, a := range to.Addresses {
		at := netip.AddrPortFrom(a, port).String()
		var l net.Listener
		if err := to.Netns.Do(func() (err error) {
			l, err = net.Listen("tcp", at)
			return err
		}); err != nil {
			return err
		}
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return // closed below
			}
			_, _ = conn.Write([]byte{1}) // the other end says what is missing
			_ = conn.Close()
		}()
		err := from.Netns.Do(func() error {
			conn, err := net.DialTimeout("tcp", at, patience)
			if err != nil {
				return err
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, err = conn.Read(make([]byte, 1))
			return err
		})
		l.Close()
		if err != nil {
			return fmt.Errorf("%s to %s: %w", from.Name, at, err)
		}
	}
	return nil
}

// tapNodes watches what nodes send each other.
func (c *cluster) tapNodes() tap {
	c.t.Helper()
	var addresses []netip.Prefix
	for _, n := range c.nodes {
		for _, a := range n.Addresses {
			addresses = append(addresses, netip.PrefixFrom(a.Addr(), a.Addr().BitLen()))
		}
	}
	w := tap{capture.NewWire(addresses)}
	c.t.Cleanup(w.Stop)
	for _, n := range c.nodes {
		if err := w.WatchSent(n.Netns, testbed.Uplink); err != nil {
			c.t.Fatal(err)
		}
	}
	return w
}

// plaintext are the packets from one node's address to another's that are neither encrypted nor for neighbour discovery: those at
// apiServerPort, and the others.
func (c *cluster) plaintext(w tap) (excepted, others []capture.Packet) {
	time.Sleep(seen)
	own := map[netip.Addr]bool{}
	for _, n := range c.nodes {
		for _, a := range n.Addresses {
			own[a.Addr()] = true
		}
	}
	for _, p := range w.Plain() {
		if !own[p.Source] || !own[p.Destination] || p.Protocol == unix.IPPROTO_ESP {
			continue
		}
		at := 14 + 20
		if p.Source.Is6() {
			at = 14 + 40
		}
		if len(p.Frame) < at+4 {
			others = append(others, p)
			continue
		}
		from, to := binary.BigEndian.Uint16(p.Frame[at:]), binary.BigEndian.Uint16(p.Frame[at+2:])
		switch {
		case p.Protocol == unix.IPPROTO_ICMPV6 && (p.Frame[at] == 135 || p.Frame[at] == 136):
		case p.Protocol == unix.IPPROTO_UDP && from == wireGuardPort && to == wireGuardPort:
		case p.Protocol == unix.IPPROTO_TCP && (from == apiServerPort || to == apiServerPort):
			excepted = append(excepted, p)
		default:
			others = append(others, p)
		}
	}
	return excepted, others
}

const wireGuardPort = 28781

// wantNodesEncrypted wants no plaintext between nodes but what is excepted.
func (c *cluster) wantNodesEncrypted(w tap, what string) {
	c.t.Helper()
	_, others := c.plaintext(w)
	if len(others) > 0 {
		c.t.Errorf("%s: %d packets between nodes in plaintext, the first ones %v", what, len(others), others[:min(3, len(others))])
	}
}

// echo sends large packets, in fragments, and small ones by ICMP and UDP to a node.
func (c *cluster) echo(from, to *testbed.Pod) error {
	for _, a := range to.Addresses {
		for _, size := range []string{"56", "4000"} {
			if out, err := from.Netns.Output(c.t.Context(), "ping", "-c", "2", "-W", "5", "-s", size, a.String()); err != nil {
				return fmt.Errorf("ping with %s bytes from %s to %s: %w\n%s", size, from.Name, a, err, out)
			}
		}
	}
	return from.Netns.Do(func() error {
		for _, a := range to.Addresses {
			conn, err := net.Dial("udp", netip.AddrPortFrom(a, apiServerPort).String())
			if err != nil {
				return err
			}
			_, _ = conn.Write(make([]byte, 5000)) // no process listens
			_ = conn.Close()
		}
		return nil
	})
}

func TestEncryptionOfNodesByWireGuard(t *testing.T) {
	t.Parallel()
	encryptNodes(t, netlab.WireGuard)
}

func TestEncryptionOfNodesByIPsec(t *testing.T) {
	t.Parallel()
	encryptNodes(t, netlab.IPsec)
}

// encryptNodes turns the encryption of what nodes send each other on, node by node. Then no byte goes in plaintext but what is
// excepted, also while agents restart; plaintext that arrives is dropped; and without a key the API server stays reachable.
func encryptNodes(t *testing.T, mode netlab.Encryption) {
	c := upEncrypted(t, mode, testbed.Options{IPv6: true}, "--policy=none", "--flows=off")
	first, second := c.nodes[0], c.nodes[1]
	a, b := itself(first), itself(second)
	both := func(what string, try func(from, to *testbed.Pod) error) {
		t.Helper()
		for _, pair := range [][2]*testbed.Pod{{a, b}, {b, a}} {
			if err := try(pair[0], pair[1]); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	both("in plaintext", c.reach)
	c.restart(first, current(t), first.encryptingNodes()...)
	c.announceNodes(first)
	both("with one node that encrypts", c.reach)
	pods := c.addPods()
	streams := c.startStreams([2]*testbed.Pod{a, b}, [2]*testbed.Pod{b, a}, [2]*testbed.Pod{pods.a, pods.far})
	c.restart(second, current(t), second.encryptingNodes()...)
	c.announceNodes(second)
	for _, n := range c.nodes {
		c.waitNodesEncrypted(n, mode.Name)
	}
	streams.waitProgress()
	streams.finish()

	w := c.tapNodes()
	both("encrypted", c.reach)
	both("encrypted", c.echo)
	c.wantNodesEncrypted(w, "encrypted")
	if w.Encrypted() == 0 {
		t.Error("no encrypted packet")
	}
	both("the API server", func(from, to *testbed.Pod) error { return ask(from, to, apiServerPort) })
	if excepted, _ := c.plaintext(w); len(excepted) == 0 {
		t.Error("the API server's port is not reached in plaintext")
	}
	for _, pair := range [][2]*testbed.Pod{{pods.a, b}, {pods.far, a}, {b, pods.a}, {a, pods.far}} {
		if err := c.reach(withoutSource(pair[0]), pair[1]); err != nil {
			t.Errorf("a pod and a node: %v", err)
		}
	}
	c.kill(first)
	both("without an agent", c.reach)
	c.start(first, current(t), first.encryptingNodes()...)
	c.waitReady(first)
	both("after a restart", c.reach)
	c.wantNodesEncrypted(w, "after a restart")
	w.Stop()

	// Without the other node's key nothing is sent but what is excepted.
	announced := second.object.Annotations
	without := maps.Clone(announced)
	maps.DeleteFunc(without, func(name, _ string) bool { return name != v1alpha1.AnnotationEncryptNodes })
	c.annotate(second, without)
	c.waitNodesEncrypted(first, agentapi.NodePathPending)
	w = c.tapNodes()
	if err := ask(a, b, 7777); err == nil {
		t.Error("the node is reached without its key")
	}
	both("the API server, without a key", func(from, to *testbed.Pod) error { return ask(from, to, apiServerPort) })
	c.wantNodesEncrypted(w, "without a key")
	w.Stop()
	c.annotate(second, announced)
	c.waitNodesEncrypted(first, mode.Name)
	both("with the key again", c.reach)

	// Plaintext with the address of a node that encrypts is dropped.
	c.restart(second, current(t), second.encrypted("--policy=none", "--flows=off")...)
	before := c.dropped(first, "from_wire", "unencrypted")
	if err := ask(b, a, 7777); err == nil {
		t.Error("plaintext arrives")
	}
	if c.dropped(first, "from_wire", "unencrypted") == before {
		t.Error("no plaintext was dropped")
	}
	both("the API server, in plaintext", func(from, to *testbed.Pod) error { return ask(from, to, apiServerPort) })
	c.annotate(second, c.status(second).Annotations)
	c.waitStatus(first, func(s *agentapi.Status) error {
		if slices.ContainsFunc(s.Nodes, func(n agentapi.RemoteNode) bool { return n.Encryption == nil || n.Encryption.Nodes }) {
			return fmt.Errorf("%+v", s.Nodes)
		}
		return nil
	})
	both("turned off", c.reach)
}

// TestEncryptionOfNodesClosed has two nodes without a device that encrypts: they reach each other by what is excepted, and by nothing
// else. It needs neither WireGuard nor IPsec.
func TestEncryptionOfNodesClosed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, testbed.Options{IPv6: true})
	for _, n := range c.nodes {
		n.object.Annotations = map[string]string{v1alpha1.AnnotationEncryptNodes: v1alpha1.EncryptNodes}
		c.writeNode(n)
	}
	first, second := c.nodes[0], c.nodes[1]
	c.start(first, current(t), first.encryptingNodes()...)
	c.start(second, current(t), second.encryptingNodes()...)
	for _, n := range c.nodes {
		c.waitReady(n)
		c.waitNodesEncrypted(n, agentapi.NodePathPending)
	}
	w := c.tapNodes()
	a, b := itself(first), itself(second)
	for _, pair := range [][2]*testbed.Pod{{a, b}, {b, a}} {
		if err := ask(pair[0], pair[1], apiServerPort); err != nil {
			t.Errorf("the API server: %v", err)
		}
		if err := ask(pair[0], pair[1], 7777); err == nil {
			t.Errorf("%s reaches %s without keys", pair[0].Name, pair[1].Name)
		}
		if err := c.echo(pair[0], pair[1]); err == nil {
			t.Errorf("%s reaches %s by ICMP without keys", pair[0].Name, pair[1].Name)
		}
	}
	excepted, _ := c.plaintext(w)
	if len(excepted) == 0 {
		t.Error("no packet at the API server's port is seen")
	}
	c.wantNodesEncrypted(w, "closed")

	// Without the routing rules nothing leaves either, and an agent restores them.
	for _, family := range []string{"-4", "-6"} {
		if out, err := first.Netns.Output(t.Context(), "ip", family, "rule", "delete", "priority", "199"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := knock(first.Netns, b); err != nil {
		t.Fatal(err)
	}
	c.wantNodesEncrypted(w, "without rules")

	// Plaintext of another node arrives by what is excepted only.
	c.restart(second, current(t), "--policy=none", "--flows=off")
	before := c.dropped(first, "from_wire", "unencrypted")
	if err := ask(b, a, 7777); err == nil {
		t.Error("plaintext arrives")
	}
	if c.dropped(first, "from_wire", "unencrypted") == before {
		t.Error("no plaintext was dropped")
	}
	if err := ask(b, a, apiServerPort); err != nil {
		t.Errorf("the API server, in plaintext: %v", err)
	}
	c.annotate(second, nil)
	eventually(t, func() error { return ask(b, a, 7777) })
}

// TestEncryptionOfNodesUninstalled removes the routing rules and the table. It needs neither WireGuard nor IPsec.
func TestEncryptionOfNodesUninstalled(t *testing.T) {
	t.Parallel()
	p := current(t)
	c := newCluster(t, testbed.Options{IPv6: true})
	n, other := c.nodes[0], c.nodes[1]
	other.object.Annotations = map[string]string{v1alpha1.AnnotationEncryptNodes: v1alpha1.EncryptNodes}
	c.writeNode(other)
	c.start(n, p, n.encrypted("--encrypt-nodes")...)
	c.waitReady(n)
	show := func() (all string) {
		for _, args := range [][]string{{"rule"}, {"-6", "rule"}, {"route", "show", "table", "19065"}, {"-6", "route", "show", "table", "19065"}} {
			out, err := n.Netns.Output(t.Context(), "ip", args...)
			if err != nil && !strings.Contains(err.Error(), "does not exist") {
				t.Fatal(err)
			}
			all += string(out)
		}
		return all
	}
	own := []string{"lookup 19065", "fwmark 0x103e", "dport 6443", "sport 6443", other.Addresses[0].Addr().String()}
	eventually(t, func() error {
		if has := show(); !containsAll(has, own) {
			return fmt.Errorf("not all of %v are in\n%s", own, has)
		}
		return nil
	})
	if err := c.terminate(n); err != nil {
		t.Error(err)
	}
	if has := show(); !containsAll(has, own) {
		t.Errorf("they are gone with the agent:\n%s", has)
	}
	args := append([]string{"uninstall", "--force", "--state-dir", n.stateDir(), "--bpffs", n.BPFFS}, newHost(t, p).flags()...)
	if output, err := n.Output(t.Context(), p.Agent(), args...); err != nil {
		t.Fatalf("uninstall: %s, %v", output, err)
	}
	has := show()
	for _, what := range own {
		if strings.Contains(has, what) {
			t.Errorf("%s is left:\n%s", what, has)
		}
	}
}
