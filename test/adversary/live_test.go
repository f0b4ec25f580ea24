package adversary

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// liveConn is a TCP connection with both ends open, and its listener.
type liveConn struct {
	client, server netip.AddrPort
	// seenClient is the client's address at the server.
	seenClient netip.AddrPort
	sockets    []io.Closer
}

func (c liveConn) close() {
	for _, each := range c.sockets {
		_ = each.Close()
	}
}

// connect opens a TCP connection between pods, at a port that the kernel chooses.
func connect(from, to testbed.Netns, address netip.Addr) (liveConn, error) {
	return connectVia(from, to, netip.AddrPortFrom(address, 0), netip.AddrPort{})
}

// connectVia opens a TCP connection to a server via a frontend, unless that is zero. This process is outside the
// cgroups with socket programs: packets carry the frontend's address.
func connectVia(from, to testbed.Netns, at, by netip.AddrPort) (c liveConn, err error) {
	var l net.Listener
	if err := to.Do(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	}); err != nil {
		return c, err
	}
	c.sockets = append(c.sockets, l)
	if !by.IsValid() {
		by = unmapped(l.Addr())
	}
	var client net.Conn
	if err := from.Do(func() (err error) {
		client, err = net.DialTimeout("tcp", by.String(), 10*time.Second)
		return err
	}); err != nil {
		c.close()
		return c, fmt.Errorf("connect to %s: %w", by, err)
	}
	c.sockets = append(c.sockets, client)
	server, err := l.Accept()
	if err != nil {
		c.close()
		return c, err
	}
	c.sockets = append(c.sockets, server)
	c.client, c.server, c.seenClient = unmapped(client.LocalAddr()), unmapped(client.RemoteAddr()), unmapped(server.RemoteAddr())
	return c, nil
}

func unmapped(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
