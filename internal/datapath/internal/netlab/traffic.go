package netlab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// Patience is how long a packet that should come may take, NothingMore how long one is waited for that must not.
// Nothing depends on their exact length.
const (
	Patience    = 30 * time.Second
	NothingMore = 100 * time.Millisecond
)

const EchoPort = 7

// noProbes keeps connections from probing the other end: only what a test sends is on the way.
const noProbes = -1

// ServeTCP echoes every connection.
func (p Netns) ServeTCP(tb testing.TB, a netip.Addr) {
	tb.Helper()
	go AcceptAll(p.ListenTCP(tb, a), func(c net.Conn) { go Echo(c, c) })
}

func (p Netns) ListenTCP(tb testing.TB, a netip.Addr) *net.TCPListener {
	tb.Helper()
	var l *net.TCPListener
	p.Do(tb, func() (err error) {
		config := net.ListenConfig{KeepAlive: noProbes}
		made, err := config.Listen(tb.Context(), "tcp", netip.AddrPortFrom(a, EchoPort).String())
		if err == nil {
			l = made.(*net.TCPListener)
		}
		return err
	})
	tb.Cleanup(func() { l.Close() })
	return l
}

// AcceptAll hands over each connection, and waits until it is taken, until the listener is closed. Who takes it closes it.
func AcceptAll(l net.Listener, take func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		take(c)
	}
}

// Echo sends back what it reads from the connection, and closes that in the end. The client notices what is missing.
func Echo(c net.Conn, from io.Reader) {
	defer c.Close()
	_, _ = io.Copy(c, from)
}

// ServeUDP echoes every datagram.
func (p Netns) ServeUDP(tb testing.TB, a netip.Addr) {
	tb.Helper()
	c := p.ListenUDP(tb, a)
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil { // an error is the ICMP answer to an echo
				_, _ = c.WriteToUDPAddrPort(b[:n], from)
			}
		}
	}()
}

func (p Netns) ListenUDP(tb testing.TB, a netip.Addr) *net.UDPConn {
	tb.Helper()
	var c *net.UDPConn
	p.Do(tb, func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, EchoPort)))
		return err
	})
	tb.Cleanup(func() { c.Close() })
	return c
}

func (p Netns) Dial(tb testing.TB, network string, to netip.Addr) net.Conn {
	tb.Helper()
	return p.DialPort(tb, network, netip.AddrPortFrom(to, EchoPort))
}

func (p Netns) DialPort(tb testing.TB, network string, to netip.AddrPort) net.Conn {
	tb.Helper()
	var c net.Conn
	p.Do(tb, func() (err error) {
		dialer := net.Dialer{Timeout: Patience, KeepAlive: noProbes}
		c, err = dialer.Dial(network, to.String())
		return err
	})
	tb.Cleanup(func() { c.Close() })
	return c
}

// EchoTCP sends n bytes to a server of serveTCP and expects the same back.
func EchoTCP(c net.Conn, n int) error {
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	sent := RandomBytes(n)
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		written <- err
	}()
	got := make([]byte, n)
	if read, err := io.ReadFull(c, got); err != nil {
		return errors.Join(fmt.Errorf("%d of %d bytes came back: %w", read, n, err), <-written)
	}
	if !bytes.Equal(sent, got) {
		return fmt.Errorf("%d bytes came back changed", n)
	}
	return <-written
}

// EchoUDP sends one datagram to a server of serveUDP and expects it back.
func EchoUDP(c net.Conn, n int) error {
	sent := RandomBytes(n)
	if _, err := c.Write(sent); err != nil {
		return err
	}
	return Expect(c, sent)
}

// Expect reads one datagram, which must be want.
func Expect(c net.Conn, want []byte) error {
	if err := c.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	got := make([]byte, 1<<16)
	n, err := c.Read(got)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, got[:n]) {
		return fmt.Errorf("a datagram of %d bytes came, not the expected one of %d", n, len(want))
	}
	return nil
}

// ExpectNothing fails when a datagram comes.
func ExpectNothing(tb testing.TB, c net.Conn) {
	tb.Helper()
	if err := c.SetReadDeadline(time.Now().Add(NothingMore)); err != nil {
		tb.Fatal(err)
	}
	got := make([]byte, 1<<16)
	if n, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		tb.Errorf("%d bytes came (%v): % x", n, err, got[:n])
	}
}

func RandomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(n), 7))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// ListenICMP opens a raw socket for ICMP or ICMPv6. What it reads begins with the ICMP header.
func (p Netns) ListenICMP(tb testing.TB, a netip.Addr) *net.IPConn {
	tb.Helper()
	network := "ip4:1"
	if a.Is6() {
		network = "ip6:58"
	}
	var c *net.IPConn
	p.Do(tb, func() (err error) {
		c, err = net.ListenIP(network, &net.IPAddr{IP: a.AsSlice()})
		return err
	})
	tb.Cleanup(func() { c.Close() })
	return c
}

// Ping sends an ICMP echo request and expects the reply.
func (p Netns) Ping(tb testing.TB, from, to netip.Addr) error {
	tb.Helper()
	c := p.ListenICMP(tb, from)
	defer c.Close()
	request := []byte{8, 0, 0, 0, 0xbe, 0xe1, 0, 1, 'p', 'i', 'n', 'g'}
	reply := byte(0)
	if from.Is6() {
		request[0], reply = 128, 129 // the kernel fills in the checksum
	} else {
		binary.BigEndian.PutUint16(request[2:], ^fixtures.Checksum(request))
	}
	if _, err := c.WriteTo(request, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	_, err := AwaitICMP(c, func(kind, _ byte, body []byte) bool {
		return kind == reply && bytes.Equal(body[4:], request[8:])
	})
	return err
}

// AwaitICMP reads until a message fits; body is what follows type, code and checksum. It gives the sender.
func AwaitICMP(c *net.IPConn, fits func(kind, code byte, body []byte) bool) (netip.Addr, error) {
	if err := c.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return netip.Addr{}, err
	}
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return netip.Addr{}, err
		}
		if n >= 8 && fits(b[0], b[1], b[4:n]) {
			a, _ := netip.AddrFromSlice(from.(*net.IPAddr).IP)
			return a.Unmap(), nil
		}
	}
}

// Send puts frames on a device, as they are.
func (p Netns) Send(tb testing.TB, device string, frames ...[]byte) {
	tb.Helper()
	for _, f := range frames {
		p.SendAs(tb, device, uint16(f[12])<<8|uint16(f[13]), f)
	}
}

// SendAs says of frames that they are of a protocol, whatever their Ethernet headers say.
func (p Netns) SendAs(tb testing.TB, device string, protocol uint16, frames ...[]byte) {
	tb.Helper()
	p.Do(tb, func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, f := range frames {
			to := unix.SockaddrLinklayer{Ifindex: dev.Index, Protocol: protocol<<8 | protocol>>8}
			// ENOBUFS: a program at the device's egress has dropped the frame.
			if err := unix.Sendto(fd, f, 0, &to); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return fmt.Errorf("send %d bytes: %w", len(f), err)
			}
		}
		return nil
	})
}

// Sockopt reads an integer option of a connection.
func Sockopt(tb testing.TB, c net.Conn, level, option int) int {
	tb.Helper()
	var value int
	control(tb, c, func(fd int) (err error) {
		value, err = unix.GetsockoptInt(fd, level, option)
		return err
	})
	return value
}

func SetSockopt(tb testing.TB, c net.Conn, level, option, value int) {
	tb.Helper()
	control(tb, c, func(fd int) error { return unix.SetsockoptInt(fd, level, option, value) })
}

func control(tb testing.TB, c net.Conn, f func(fd int) error) {
	tb.Helper()
	raw, err := c.(interface {
		SyscallConn() (syscall.RawConn, error)
	}).SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	var inner error
	if err := errors.Join(raw.Control(func(fd uintptr) { inner = f(int(fd)) }), inner); err != nil {
		tb.Fatal(err)
	}
}

// EachPlace runs a test with NodePorts forwarded at tc and at XDP.
func EachPlace(t *testing.T, o Options, dsr bool, f func(t *testing.T, n *Network)) {
	for _, place := range []config.Acceleration{config.AccelerationTC, config.AccelerationXDP} {
		t.Run(string(place), func(t *testing.T) {
			o.Cfg = fixtures.ServicesConfig(place)
			o.Cfg.DSR = dsr
			n := NewNetwork(t, o)
			n.A.ServeNodePort(t, dsr, n.B1)
			n.B.ServeNodePort(t, dsr, n.B1)
			if place == config.AccelerationXDP {
				n.Accelerate(t, n.A)
			}
			f(t, n)
		})
	}
}
