package adversary

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketVariable makes the test binary a process of a pod that gives away a TCP socket of this family, 4 or 6. Programs
// at sockets concern the cgroup in which a socket was made, and this process is in no pod's.
const socketVariable = "BEELINE_ADVERSARY_SOCKET"

// giveSocket makes the socket and sends it by file descriptor 3.
func giveSocket(family string) (code int) {
	domain := unix.AF_INET
	if family == "6" {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Sendmsg(3, []byte{0}, unix.UnixRights(fd), nil, 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// podSocket is a TCP socket of a pod. Its calls end after a while.
type podSocket int

func (p *pod) socket(family int) (podSocket, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(ends[0])
	there := os.NewFile(uintptr(ends[1]), "socketpair")
	defer there.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", socketVariable, 4+2*family))
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{there}
	if err := p.Run(cmd); err != nil {
		return 0, fmt.Errorf("make a socket in %s: %w", p.Name, err)
	}
	control := make([]byte, unix.CmsgSpace(4))
	if _, _, _, _, err := unix.Recvmsg(ends[0], make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC); err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	limit := unix.NsecToTimeval(waitTimeout.Nanoseconds() / 6)
	return podSocket(fds[0]), errors.Join(unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// uninterrupted repeats a call that a signal has interrupted.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (s podSocket) write(b []byte) error {
	return uninterrupted(func() error { return unix.Sendto(int(s), b, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil) })
}

// hears reports whether the token comes within a time.
func (s podSocket) hears(token []byte, within time.Duration) bool {
	var all []byte
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b := make([]byte, 4096)
		n, _, err := unix.Recvfrom(int(s), b, unix.MSG_DONTWAIT)
		if n > 0 {
			all = append(all, b[:n]...)
		}
		if bytes.Contains(all, token) {
			return true
		}
		if n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
	return false
}

// repair makes the socket one of an established connection without a packet (TCP_REPAIR).
func (s podSocket) repair(local, remote netip.AddrPort) error {
	for _, option := range [][3]int{{unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1}, {unix.IPPROTO_TCP, unix.TCP_REPAIR, 1}} {
		if err := unix.SetsockoptInt(int(s), option[0], option[1], option[2]); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if err := unix.Bind(int(s), sockaddr(local)); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.Connect(int(s), sockaddr(remote)); err != nil {
		return os.NewSyscallError("connect", err)
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(s), unix.IPPROTO_TCP, unix.TCP_REPAIR, -1))
}

// podConn is a connection between sockets of two pods.
type podConn struct {
	*attempt
	client, server podSocket
	// local is the client's address, remote the server's.
	local, remote netip.AddrPort
}

// connectPods connects sockets of the attempt's pods. The test's cleanup closes them.
func (s *attempt) connectPods(t *testing.T) (c podConn, err error) {
	c.attempt = s
	listener, err := s.victim.socket(s.family)
	if err != nil {
		return c, err
	}
	defer unix.Close(int(listener))
	if c.client, err = s.attacker.socket(s.family); err != nil {
		return c, err
	}
	t.Cleanup(func() { _ = unix.Close(int(c.client)) })
	if err := errors.Join(unix.Bind(int(listener), sockaddr(netip.AddrPortFrom(s.to(), 0))), unix.Listen(int(listener), 1)); err != nil {
		return c, fmt.Errorf("listen at %s: %w", s.to(), err)
	}
	at, err := unix.Getsockname(int(listener))
	if err != nil {
		return c, err
	}
	if err := uninterrupted(func() error { return unix.Connect(int(c.client), at) }); err != nil {
		return c, fmt.Errorf("connect to %s: %w", addrPort(at), err)
	}
	err = uninterrupted(func() error {
		fd, from, err := unix.Accept4(int(listener), unix.SOCK_CLOEXEC)
		c.server, c.local, c.remote = podSocket(fd), addrPort(from), addrPort(at)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("accept at %s: %w", addrPort(at), err)
	}
	t.Cleanup(func() { _ = unix.Close(int(c.server)) })
	return c, nil
}

// says sends a token from one end and reports whether the other one has it.
func (c podConn) says(from, to podSocket, within time.Duration) (arrives bool, err error) {
	c.renew()
	if err := from.write(c.token); err != nil {
		return false, err
	}
	return to.hears(c.token, within), nil
}

// asks says a token from the client to the server, where it must arrive, and reports whether packets carried it: then it
// was captured before markers that are sent afterwards.
func (c podConn) asks() (inPackets bool, err error) {
	if arrives, err := c.says(c.client, c.server, waitTimeout/6); err != nil || !arrives {
		return false, fmt.Errorf("the client's message arrives %t: %w", arrives, err)
	}
	if err := c.mark(); err != nil {
		return false, err
	}
	return c.victim.capture.find(has(c.token)) != nil, nil
}
