package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// The path MTU is found by sending UDP datagrams of different lengths that must not be fragmented, and seeing which
// arrive: what a device's MTU promises, and what routers say, does not count. None is longer than the packets that TCP
// sends there: a router's complaint about one that is makes the kernel send less to that address for minutes, and on
// the way to a node's own address that would be the baseline. A probe is the token, its length as 32 bits big-endian,
// and zeros; the answer is its length.

// The bounds of the search, as lengths of IP packets: what every IPv6 path carries (and IPv4 paths in practice), and
// the largest packet there is.
const (
	smallestMTU = 1280
	largestMTU  = 65535
)

// A probe that was lost is sent again: only one that is lost each time is too large.
const (
	probeTries = 3
	probeWait  = 150 * time.Millisecond
)

// answerProbes is the server's side.
func (c *control) answerProbes() {
	buffer := make([]byte, largestMTU)
	for {
		n, from, err := c.packets.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		p := buffer[:n]
		if err != nil || !bytes.HasPrefix(p, []byte(c.token)) || len(p) < len(c.token)+4 {
			continue
		}
		if length := p[len(c.token):][:4]; binary.BigEndian.Uint32(length) == uint32(n) {
			_, _ = c.packets.WriteToUDPAddrPort(length, from) // a lost answer is a lost probe
		}
	}
}

// probe tests the path to a server: whether data arrives, and in packets of which length.
func probe(ctx context.Context, netns testbed.Netns, end End) (*Path, error) {
	f, err := dialControl(ctx, netns, end)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	source := netip.MustParseAddrPort(f.conn.LocalAddr().String()).Addr().Unmap()
	p := &Path{Source: source.String(), Seen: f.seen}
	overhead := 0
	if p.Segment, overhead, p.Congestion, err = connection(f.conn.(*net.TCPConn)); err != nil {
		return nil, err
	}
	if p.MTU, err = pathMTU(ctx, netns, end, min(ipHeader(end)+overhead+p.Segment, largestMTU)); err != nil {
		return nil, err
	}
	if err := f.transfer(); err != nil {
		return nil, fmt.Errorf("%w (the path carries packets of up to %d bytes, TCP sends up to %d bytes in one)", err, p.MTU, p.Segment)
	}
	return p, nil
}

// connection asks the kernel what it puts into one packet of a connection, of payload and of TCP's own header, and by
// what it decides when to send it.
func connection(conn *net.TCPConn) (segment, header int, congestion string, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, "", fmt.Errorf("look at a connection: %w", err)
	}
	var info *unix.TCPInfo
	var errInfo, errName error
	errControl := raw.Control(func(fd uintptr) {
		info, errInfo = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		congestion, errName = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	})
	if err = errors.Join(errControl, errInfo, errName); err != nil {
		return 0, 0, "", fmt.Errorf("look at a connection: %w", err)
	}
	const timestamps, timestampsLength = 1, 12 // TCPI_OPT_TIMESTAMPS of linux/tcp.h
	header = 20
	if info.Options&timestamps != 0 {
		header += timestampsLength
	}
	return int(info.Snd_mss), header, congestion, nil
}

// ipHeader is the length of the IP header on the path to a server.
func ipHeader(end End) int {
	if end.Address.Is6() && !end.Address.Is4In6() {
		return 40
	}
	return 20
}

// pathMTU returns the length, most at most, of the largest packet that arrives.
func pathMTU(ctx context.Context, netns testbed.Netns, end End, most int) (int, error) {
	var conn *net.UDPConn
	err := netns.Do(func() (err error) {
		conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(end.Address, uint16(end.Control))))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure path MTU: %w", err)
	}
	defer conn.Close()
	headers := ipHeader(end) + 8
	if err := forbidFragments(conn, ipHeader(end) == 40); err != nil {
		return 0, fmt.Errorf("measure path MTU: %w", err)
	}
	arrives := func(mtu int) bool { return arrives(ctx, conn, end.Token, mtu-headers) }
	least := min(smallestMTU, most)
	if !arrives(least) {
		return 0, errors.Join(ctx.Err(), fmt.Errorf("measure path MTU: UDP packets of %d bytes do not arrive", least))
	}
	if arrives(most) {
		return most, nil
	}
	more := sort.Search(most-least-1, func(i int) bool { return !arrives(least + 1 + i) })
	return least + more, ctx.Err()
}

// forbidFragments makes the kernel send packets of any length that the device takes, whatever it has learned of the
// path, and never in fragments.
func forbidFragments(conn *net.UDPConn, six bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		if six {
			err = errors.Join(
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1))
			return
		}
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	})
	return errors.Join(controlErr, err)
}

// arrives reports whether a datagram with that much payload reaches the other end. Errors of the socket count as not:
// they are what the kernel thinks of this probe, or of the one before.
func arrives(ctx context.Context, conn *net.UDPConn, token string, payload int) bool {
	p := make([]byte, payload)
	copy(p, token)
	binary.BigEndian.PutUint32(p[len(token):], uint32(payload))
	reply := make([]byte, 16)
	for range probeTries {
		if ctx.Err() != nil {
			return false
		}
		if _, err := conn.Write(p); err != nil {
			continue
		}
		deadline := time.Now().Add(probeWait)
		for {
			_ = conn.SetReadDeadline(deadline)
			n, err := conn.Read(reply)
			if err != nil {
				break
			}
			if n == 4 && binary.BigEndian.Uint32(reply) == uint32(payload) {
				return true // else the late answer to another probe
			}
		}
	}
	return false
}
