package samenode_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/samenode"
	"github.com/beeline-cni/beeline/internal/device/sock"
	"github.com/beeline-cni/beeline/internal/policy"
)

// share is what pods of the tests have.
const share = 64

// lab is a network whose node A has sockets that meet.
type lab struct {
	*netlab.Network
	*samenode.SameNode
}

// newLab makes a network. The pods opt in by join.
func newLab(t testing.TB, cfg config.Datapath) *lab {
	t.Helper()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
	l := &lab{Network: n}
	l.open(t)
	return l
}

// open loads and attaches the programs, as an agent does that starts.
func (l *lab) open(t testing.TB) {
	t.Helper()
	s, err := samenode.Open(l.A.D.Objects, netlab.OwnCgroup(t), 0, fixtures.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := samenode.Remove(l.A.D.Objects.Config.Root); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	l.SameNode = s
}

// cookie is that of a pod's network namespace.
func cookie(t testing.TB, p *netlab.Pod) (cookie uint64) {
	t.Helper()
	p.Do(t, func() (err error) {
		cookie, err = sock.NetnsCookie()
		return err
	})
	return cookie
}

// join makes exactly these pods opt in.
func (l *lab) join(t testing.TB, pods ...*netlab.Pod) {
	t.Helper()
	all := map[netip.Addr]samenode.Pod{}
	for _, p := range pods {
		all[p.V4] = samenode.Pod{Netns: cookie(t, p), Share: share}
		all[p.V6] = all[p.V4]
	}
	if _, err := l.Sync(all); err != nil {
		t.Fatal(err)
	}
}

// connect connects the client's pod to the server's and returns both ends.
func connect(t testing.TB, client, server *netlab.Pod, family int) (c, s *net.TCPConn) {
	t.Helper()
	listener := server.ListenTCP(t, server.Addr(family))
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if got, err := listener.Accept(); err == nil {
			accepted <- got
		}
		close(accepted)
	}()
	c = client.Dial(t, "tcp", server.Addr(family)).(*net.TCPConn)
	got, ok := <-accepted
	if !ok {
		t.Fatal("the server accepted no connection")
	}
	t.Cleanup(func() { got.Close() })
	return c, got.(*net.TCPConn)
}

// says sends text from one end and expects it at the other.
func says(t testing.TB, from, to net.Conn, text string) {
	t.Helper()
	if _, err := from.Write([]byte(text)); err != nil {
		t.Fatalf("send %q: %v", text, err)
	}
	if got, err := read(to, len(text)); err != nil || got != text {
		t.Fatalf("%q arrived of %q: %v", got, text, err)
	}
}

// onlyRead keeps io.Copy from splice(2).
type onlyRead struct{ io.Reader }

// read reads n bytes.
func read(c net.Conn, n int) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(netlab.Patience)); err != nil {
		return "", err
	}
	var all []byte
	for len(all) < n {
		b := make([]byte, n-len(all))
		got, err := c.Read(b)
		all = append(all, b[:got]...)
		if err != nil {
			return string(all), err
		}
	}
	return string(all), nil
}

// hearsNothing expects nothing to arrive for a while.
func hearsNothing(t testing.TB, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes arrived", n)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// counts reads the counters.
func (l *lab) counts(t testing.TB) samenode.Counts {
	t.Helper()
	c, err := l.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sockets lists the sockets.
func (l *lab) sockets(t testing.TB) []samenode.Socket {
	t.Helper()
	all, err := l.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// rules applies policies: rules of each pod and, for each set, the identities that it allows on all ports.
func (l *lab) rules(t testing.TB, pods map[*netlab.Pod]policy.Sets, allowed map[policy.Set][]policy.Identity) {
	t.Helper()
	tables := &policy.Tables{
		Pods: map[netip.Addr]policy.Sets{}, Policies: map[policy.Peer]policy.Ports{}, Identities: map[netip.Addr]policy.Identity{},
		Ports: map[policy.PortPrefix]policy.Policy{{Ports: harness.PortsEvery}: harness.ThePolicy},
	}
	for m, id := range map[*netlab.Pod]policy.Identity{l.A1: harness.IdA, l.A2: harness.IdA2} {
		tables.Identities[m.V4], tables.Identities[m.V6] = id, id
	}
	for p, sets := range pods {
		tables.Pods[p.V4], tables.Pods[p.V6] = sets, sets
	}
	for set, ids := range allowed {
		for _, id := range ids {
			tables.Policies[policy.Peer{Set: set, Identity: id}] = harness.PortsEvery
		}
	}
	if _, err := l.A.D.Policies.Sync(tables); err != nil {
		t.Fatal(err)
	}
}

// serve echoes every connection, with read(2) and write(2): netlab's server uses splice(2), which data from sockets of
// the same node does not support (TestSplice).
func serve(t testing.TB, p *netlab.Pod, a netip.Addr) {
	t.Helper()
	go netlab.AcceptAll(p.ListenTCP(t, a), func(c net.Conn) { go netlab.Echo(c, onlyRead{c}) })
}
