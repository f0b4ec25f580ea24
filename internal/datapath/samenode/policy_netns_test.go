package samenode_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/policy"
	"github.com/beeline-cni/beeline/internal/testenv"
)

var withPolicy = config.Datapath{EBPFRouting: true, Masquerade: true, Policy: true}

// server isolates A2 for ingress: A1 is allowed, or not.
func (l *lab) server(t *testing.T, allowed bool) {
	t.Helper()
	ids := []policy.Identity{harness.IdB}
	if allowed {
		ids = append(ids, harness.IdA)
	}
	l.rules(t, map[*netlab.Pod]policy.Sets{l.A2: {Ingress: harness.Rules}}, map[policy.Set][]policy.Identity{harness.Rules: ids})
}

// Policies decide about messages between sockets as about packets: what is revoked does not arrive, in either
// direction, and both applications get an error.
func TestPolicyRevokesPairs(t *testing.T) {
	for _, family := range fixtures.Families {
		l := newLab(t, withPolicy)
		l.join(t, l.A1, l.A2)
		l.server(t, true)
		c, s := connect(t, l.A1, l.A2, family)
		idle, idleServer := connect(t, l.A1, l.A2, family)
		says(t, c, s, "question")
		says(t, s, c, "answer")
		says(t, idle, idleServer, "question")
		l.server(t, true) // another revision, still allowed
		says(t, c, s, "question")
		says(t, s, c, "answer")
		if n := l.counts(t); n.Messages != 5 || n.Revoked() != 0 {
			t.Fatalf("%+v, want 5 messages", n)
		}

		l.server(t, false)
		if _, err := c.Write([]byte("denied")); err != nil {
			t.Fatal(err)
		}
		hearsNothing(t, s)
		if _, err := s.Write([]byte("denied")); err != nil {
			t.Fatal(err)
		}
		hearsNothing(t, c)
		if n := l.counts(t); n.Messages != 5 || n.Revoked() != 2 {
			t.Errorf("%+v, want 5 messages and 2 revoked sockets", n)
		}
		if drops := l.A.Dropped(t); drops[bpf.ProgFromPod+" ingress_policy"] == 0 {
			t.Errorf("drops %v", drops)
		}
		if !l.destroys(t, 2) {
			testenv.Missing(t, "not on this kernel: bpf_sock_destroy (Linux 6.5)")
		}
		l.destroys(t, 0)
		for name, end := range map[string]net.Conn{"client": c, "server": s} {
			if _, err := end.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// A connection without data since is not known to be revoked; its next message is.
		if _, err := idleServer.Write([]byte("denied")); err != nil {
			t.Fatal(err)
		}
		hearsNothing(t, idle)
	}
}

// destroys destroys revoked sockets, and expects so many. It returns false on kernels that cannot.
func (l *lab) destroys(t *testing.T, want int) bool {
	t.Helper()
	if err := l.CannotDestroy(); errors.Is(err, ebpf.ErrNotSupported) {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	n, err := l.DestroyRevoked([]string{l.A1.Path(), l.A2.Path()})
	if err != nil || n != want {
		t.Errorf("%d sockets were destroyed, want %d: %v", n, want, err)
	}
	return true
}

// Egress policies of the client, and a reply of the server after they change.
func TestPolicyOfClient(t *testing.T) {
	l := newLab(t, withPolicy)
	l.join(t, l.A1, l.A2)
	rules := func(ids ...policy.Identity) {
		l.rules(t, map[*netlab.Pod]policy.Sets{l.A1: {Egress: harness.Rules}}, map[policy.Set][]policy.Identity{harness.Rules: ids})
	}
	rules(harness.IdA2)
	c, s := connect(t, l.A1, l.A2, 4)
	says(t, c, s, "question")
	says(t, s, c, "answer")
	rules()
	if _, err := s.Write([]byte("denied")); err != nil {
		t.Fatal(err)
	}
	hearsNothing(t, c)
	if n := l.counts(t); n.Messages != 2 || n.Revoked() != 1 {
		t.Errorf("%+v", n)
	}
}

// Pods that become selected after the connection started have no conntrack entry: packets decide.
func TestPolicyWithoutEntry(t *testing.T) {
	l := newLab(t, withPolicy)
	l.join(t, l.A1, l.A2)
	c, s := connect(t, l.A1, l.A2, 4)
	says(t, c, s, "no policy selects the pods")
	l.server(t, false)
	if _, err := c.Write([]byte("denied")); err != nil {
		t.Fatal(err)
	}
	hearsNothing(t, s)

	l.destroys(t, 2)

	c, s = connect(t, l.A2, l.A1, 4)
	says(t, c, s, "the isolated pod may initiate")
	l.server(t, true)
	says(t, c, s, "with an entry")
	if err := l.A.D.Conntrack.Forget(l.A2.V4); err != nil {
		t.Fatal(err)
	}
	says(t, c, s, "packets, evaluated in the middle of the connection")
	if n := l.counts(t); n.Messages != 3 || n.Left["policy"] != 2 {
		t.Errorf("%+v", n)
	}
}

// Messages count in the conntrack entry, and keep it from expiring.
func TestMessagesAreCounted(t *testing.T) {
	l := newLab(t, config.Datapath{EBPFRouting: true, Masquerade: true, Flows: config.FlowsAll})
	l.join(t, l.A1, l.A2)
	c, s := connect(t, l.A1, l.A2, 4)
	before := l.entry(t, c)
	time.Sleep(1100 * time.Millisecond)
	says(t, c, s, "0123456789")
	says(t, c, s, "0123456789")
	says(t, s, c, "01234")
	after := l.entry(t, c)
	if p, b := after.Packets[0]-before.Packets[0], after.Bytes[0]-before.Bytes[0]; p != 2 || b != 20 {
		t.Errorf("%d messages with %d bytes were counted, want 2 with 20", p, b)
	}
	if p, b := after.Packets[1]-before.Packets[1], after.Bytes[1]-before.Bytes[1]; p != 1 || b != 5 {
		t.Errorf("%d replies with %d bytes were counted, want 1 with 5", p, b)
	}
	if after.Seen <= before.Seen {
		t.Error("the entry would expire while the sockets talk")
	}
	c.Close()
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
}

// entry is the conntrack entry of a connection.
func (l *lab) entry(t *testing.T, c net.Conn) conntrack.Entry {
	t.Helper()
	own, peer := netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
	for _, e := range harness.AllEntries(t, l.A.D.Conntrack) {
		if e.Source == own && e.Destination == peer {
			return e
		}
	}
	t.Fatalf("no conntrack entry of %s", own)
	return conntrack.Entry{}
}
