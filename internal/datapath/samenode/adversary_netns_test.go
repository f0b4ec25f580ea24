package samenode_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// repaired makes an established socket without a packet, as CAP_NET_ADMIN allows (TCP_REPAIR). The numbers are those of
// the next byte to send and to receive.
func repaired(t *testing.T, p *netlab.Pod, local, remote netip.AddrPort, sends, receives int) net.Conn {
	t.Helper()
	var c net.Conn
	p.Do(t, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "repaired")
		defer f.Close()
		for _, option := range [][2]int{
			{unix.TCP_REPAIR, 1},
			{unix.TCP_REPAIR_QUEUE, 2}, {unix.TCP_QUEUE_SEQ, sends}, // TCP_SEND_QUEUE
			{unix.TCP_REPAIR_QUEUE, 1}, {unix.TCP_QUEUE_SEQ, receives}, // TCP_RECV_QUEUE
		} {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, option[0], option[1]); err != nil {
				return os.NewSyscallError("setsockopt", err)
			}
		}
		if err := unix.Bind(fd, netlab.Sockaddr(local)); err != nil {
			return os.NewSyscallError("bind", err)
		}
		if err := unix.Connect(fd, netlab.Sockaddr(remote)); err != nil {
			return os.NewSyscallError("connect", err)
		}
		// TCP_REPAIR_OFF_NO_WP: without a window probe, which the other end would reset.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, -1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		c, err = net.FileConn(f)
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// Two pods that cooperate make sockets that no packet has established. Where policies allow the connection they meet;
// where policies deny it, or nothing was evaluated, they exchange nothing.
func TestRepairedSockets(t *testing.T) {
	for _, denied := range []bool{false, true} {
		l := newLab(t, config.Datapath{EBPFRouting: true, Masquerade: true, Policy: true})
		l.join(t, l.A1, l.A2)
		if denied {
			l.server(t, false)
		}
		client, server := netip.AddrPortFrom(l.A1.V4, 41000), netip.AddrPortFrom(l.A2.V4, 42000)
		c := repaired(t, l.A1, client, server, 1000, 9000)
		s := repaired(t, l.A2, server, client, 9000, 1000)
		if n := l.counts(t).Joined; n != 2 {
			t.Fatalf("%d sockets joined: the attack does not reach the programs", n)
		}
		if !denied {
			says(t, c, s, "no policy selects the pods")
			continue
		}
		if _, err := c.Write([]byte("denied")); err != nil {
			t.Fatal(err)
		}
		hearsNothing(t, s)
		if n := l.counts(t); n.Messages != 0 || n.Left["policy"] != 1 {
			t.Errorf("%+v", n)
		}
	}
}

// A pod reuses the address and ports of a connection whose own end is gone. The other pod's socket is of the earlier
// connection: it gets nothing, since the new one has no end there.
func TestReusedPorts(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	c, s := connect(t, l.A1, l.A2, 4)
	says(t, c, s, "before")
	local, remote := netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
	// Another pod than the one that accepted, with an address of its own and the client's port.
	l.join(t, l.A1)
	forged := repaired(t, l.A2, netip.AddrPortFrom(l.A2.V4, local.Port()), netip.AddrPortFrom(l.A1.V4, remote.Port()), 1, 1)
	if _, err := forged.Write([]byte("forged")); err != nil {
		t.Fatal(err)
	}
	hearsNothing(t, c)
	hearsNothing(t, s)
	if n := l.counts(t).Joined; n != 2 {
		t.Errorf("%d sockets joined", n)
	}
}

// A later pod has the address of an earlier one, whose connection is still open at its other end. It makes a socket with
// the same ports. In packets it would have to know the sequence numbers; it must not write to that end without them.
func TestReusedAddress(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	c, s := connect(t, l.A1, l.A2, 4)
	says(t, c, s, "before")
	local, remote := netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
	later := netlab.NewNetns(t)
	later.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(l.A1.V4.AsSlice())}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: netlink.NewIPNet(l.A2.V4.AsSlice())}))
	})
	pod := &netlab.Pod{Netns: later, Member: l.A1.Member}
	l.join(t, pod, l.A2)
	forged := repaired(t, pod, local, remote, 1, 1)
	if n := l.counts(t).Joined; n != 3 {
		t.Fatalf("%d sockets joined: the attack does not reach the programs", n)
	}
	if _, err := forged.Write([]byte("forged")); err != nil {
		t.Fatal(err)
	}
	hearsNothing(t, s)
	if n := l.counts(t); n.Messages != 1 || n.Left["peer"] != 1 {
		t.Errorf("%+v", n)
	}
}
