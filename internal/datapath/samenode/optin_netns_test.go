package samenode_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/samenode"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Sockets of a pod that did not opt in are never in the map, whatever the other end is.
func TestOnlyPodsThatOptedIn(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	for name, pods := range map[string][]*netlab.Pod{"none": nil, "the client alone": {l.A1}, "the server alone": {l.A2}} {
		l.join(t, pods...)
		c, s := connect(t, l.A1, l.A2, 4)
		says(t, c, s, "question")
		says(t, s, c, "answer")
		if all := l.sockets(t); len(all) > 0 {
			t.Errorf("%s: sockets %+v", name, all)
		}
	}
	l.join(t, l.A1, l.A2)
	// The pod of another node, the node itself, and the pod itself.
	for _, to := range []netip.Addr{l.B1.V4, l.A.V4, l.A1.V4} {
		server := map[netip.Addr]netlab.Netns{l.B1.V4: l.B1.Netns, l.A.V4: l.A.Netns, l.A1.V4: l.A1.Netns}[to]
		server.ServeTCP(t, to)
		if err := netlab.EchoTCP(l.A1.Dial(t, "tcp", to), 100); err != nil {
			t.Errorf("to %s: %v", to, err)
		}
		if all := l.sockets(t); len(all) > 0 {
			t.Errorf("to %s: sockets %+v", to, all)
		}
	}
	if c := l.counts(t); c.Joined != 0 {
		t.Errorf("%+v", c)
	}
}

// A pod may have any address in its own namespace. It meets no other pod with it.
func TestForeignAddresses(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	// The victims' connection.
	c, s := connect(t, l.A1, l.A2, 4)
	says(t, c, s, "before")
	port := uint16(c.LocalAddr().(*net.TCPAddr).Port)

	attacker := netlab.NewNetns(t)
	attacker.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{l.A1.V4, l.A2.V4} {
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(a.AsSlice())}); err != nil {
				return err
			}
		}
		return nil
	})
	before := l.counts(t)
	// The same addresses and ports as the victims', in a namespace of no pod.
	listener := attacker.ListenTCP(t, l.A2.V4)
	var forged net.Conn
	attacker.Do(t, func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: l.A1.V4.AsSlice(), Port: int(port)}}
		forged, err = d.Dial("tcp", listener.Addr().String())
		return err
	})
	defer forged.Close()
	if _, err := forged.Write([]byte("forged")); err != nil {
		t.Fatal(err)
	}
	// One end with an address of its own: a pod that opted in gives itself the other pod's address.
	l.A2.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(l.A1.V4.AsSlice())})
	})
	listener2 := l.A2.ListenTCP(t, l.A1.V4)
	inner := l.A2.DialPort(t, "tcp", netip.MustParseAddrPort(listener2.Addr().String()))
	if _, err := inner.Write([]byte("inner")); err != nil {
		t.Fatal(err)
	}
	after := l.counts(t)
	if after.Messages != before.Messages {
		t.Errorf("%d messages went from socket to socket", after.Messages-before.Messages)
	}
	hearsNothing(t, s)
	hearsNothing(t, c)
}

// The subflows of MPTCP are TCP sockets, whose data the kernel orders by itself: they use packets.
func TestMPTCP(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	var listener net.Listener
	l.A2.Do(t, func() (err error) {
		var config net.ListenConfig
		config.SetMultipathTCP(true)
		listener, err = config.Listen(t.Context(), "tcp", netip.AddrPortFrom(l.A2.V4, 0).String())
		return err
	})
	defer listener.Close()
	var c *net.TCPConn
	l.A1.Do(t, func() error {
		var d net.Dialer
		d.SetMultipathTCP(true)
		made, err := d.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err == nil {
			c = made.(*net.TCPConn)
		}
		return err
	})
	defer c.Close()
	s, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, end := range []net.Conn{c, s} {
		if used, err := end.(*net.TCPConn).MultipathTCP(); err != nil || !used {
			testenv.Missing(t, "MPTCP: a kernel with CONFIG_MPTCP and net.mptcp.enabled")
		}
	}
	says(t, c, s, "question")
	says(t, s, c, "answer")
	if n := l.counts(t); n.Joined != 0 || n.Messages != 0 {
		t.Errorf("%+v", n)
	}
}

// A pod that no longer opts in goes back to packets, without loss.
func TestOptOut(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	c, s := connect(t, l.A1, l.A2, 6)
	says(t, c, s, "meets")
	if _, err := c.Write([]byte("unread; ")); err != nil {
		t.Fatal(err)
	}
	l.join(t, l.A2)
	if _, err := c.Write([]byte("packet")); err != nil {
		t.Fatal(err)
	}
	if got, err := read(s, 14); err != nil || got != "unread; packet" {
		t.Errorf("%q arrived: %v", got, err)
	}
	says(t, s, c, "reply")
	if n := l.counts(t).Left["opt_out"]; n != 2 {
		t.Errorf("%d sockets went back to packets, want 2", n)
	}
}

// Sockets of an earlier agent's programs go back to packets when the next one starts, or when the feature is removed.
func TestNextAgent(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	c, s := connect(t, l.A1, l.A2, 4)
	says(t, c, s, "meets")
	old := l.SameNode
	l.open(t)
	l.join(t, l.A1, l.A2)
	says(t, c, s, "packets")
	says(t, s, c, "packets")
	if counts, err := old.Counts(); err != nil || counts.Left["agent"] != 2 {
		t.Errorf("counts of the earlier agent %+v, %v", counts, err)
	}
	c2, s2 := connect(t, l.A1, l.A2, 4)
	says(t, c2, s2, "meets again")
	if n := l.counts(t).Messages; n != 1 {
		t.Errorf("%d messages of the next agent, want 1", n)
	}
	if attached, err := old.Attached(); attached || err != nil {
		t.Errorf("the earlier agent's program is attached: %v", err)
	}
	if attached, err := l.Attached(); !attached || err != nil {
		t.Errorf("the program is not attached: %v", err)
	}
	removed, err := samenode.Remove(l.A.D.Objects.Config.Root)
	if err != nil || len(removed) != 3 {
		t.Errorf("removed %q: %v", removed, err)
	}
	says(t, c2, s2, "packets")
	connect(t, l.A1, l.A2, 4)
	if counts := l.counts(t); counts.Joined != 2 || counts.Left["agent"] != 1 {
		t.Errorf("after removal %+v", counts)
	}
	if again, err := samenode.Remove(l.A.D.Objects.Config.Root); err != nil || len(again) > 0 {
		t.Errorf("removed again %q: %v", again, err)
	}
}

// A pod cannot fill the map: sockets beyond its share use packets. Closed sockets return theirs.
func TestShare(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	serve(t, l.A2, l.A2.V4)
	var open []net.Conn
	for range share + 3 {
		c := l.A1.Dial(t, "tcp", l.A2.V4)
		if err := netlab.EchoTCP(c, 10); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if c := l.counts(t); c.Joined != 2*share || c.NoShare != 6 {
		t.Errorf("%+v, want %d sockets and 6 without a share", c, 2*share)
	}
	l.sweeps(t, 0) // the recount agrees
	for _, c := range open {
		c.Close()
	}
	l.awaitSockets(t, 0)
	for range share {
		if err := netlab.EchoTCP(l.A1.Dial(t, "tcp", l.A2.V4), 10); err != nil {
			t.Fatal(err)
		}
	}
	if c := l.counts(t); c.Joined != 4*share || c.NoShare != 6 {
		t.Errorf("after the first were closed %+v", c)
	}
}

// Data that was sent before the sockets could meet must not be overtaken: TCP Fast Open without a cookie sends it
// after the handshake.
func TestFastOpen(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	listener := l.A2.ListenTCP(t, l.A2.V4)
	l.A1.Do(t, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_NO_COOKIE, 1); err != nil {
			return err
		}
		to := &unix.SockaddrInet4{Port: netlab.EchoPort, Addr: l.A2.V4.As4()}
		if err := unix.Sendto(fd, []byte("first "), unix.MSG_FASTOPEN, to); err != nil {
			return err
		}
		got, err := listener.Accept()
		if err != nil {
			return err
		}
		defer got.Close()
		if _, err := unix.Write(fd, []byte("second")); err != nil {
			return err
		}
		if text, err := read(got, 12); err != nil || text != "first second" {
			t.Errorf("%q arrived: %v", text, err)
		}
		return nil
	})
	if c := l.counts(t); c.Left["unsuitable"]+c.Left["peer"] != 1 {
		t.Errorf("%+v", c)
	}
}
