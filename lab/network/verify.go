package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// verifyBytes fill many packets of any MTU a lab can have, so that a path that carries small packets only
// is found.
const verifyBytes = 512 << 10

// Verify proves that a pod reaches another over every address family: a TCP connection carries data that
// fills whole packets, and arrives from the sender's own address. The error names network, pods and what
// went wrong.
func Verify(ctx context.Context, c Network, from, to *testbed.Pod) error {
	if len(from.Addresses) != len(to.Addresses) {
		return fmt.Errorf("%s: %s has addresses %v, %s has %v", c.Name(), from.Name, from.Addresses, to.Name, to.Addresses)
	}
	for i, address := range to.Addresses {
		seen, err := transfer(ctx, from.Netns, to.Netns, address)
		if err != nil {
			return fmt.Errorf("%s: from %s on %s to %s on %s: %w", c.Name(), from.Name, from.Node, to.Name, to.Node, err)
		}
		if seen != from.Addresses[i] {
			return fmt.Errorf("%s: %s on %s sees %s, which is %s, as %s: addresses between pods must not be translated",
				c.Name(), to.Name, to.Node, from.Name, from.Addresses[i], seen)
		}
	}
	return nil
}

// transfer sends verifyBytes over a connection and gives the sender's address as the receiver sees it.
func transfer(ctx context.Context, from, to testbed.Netns, address netip.Addr) (seen netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	deadline, _ := ctx.Deadline()

	listener, err := to.Listen(ctx, netip.AddrPortFrom(address, 0))
	if err != nil {
		return seen, fmt.Errorf("listen: %w", err)
	}
	defer listener.Close()
	_ = listener.(*net.TCPListener).SetDeadline(deadline)

	received := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			received <- fmt.Errorf("accept: %w", err)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(deadline)
		seen = conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if n, err := io.Copy(io.Discard, conn); err != nil || n != verifyBytes {
			received <- fmt.Errorf("receive: %d of %d bytes: %w", n, verifyBytes, err)
			return
		}
		received <- nil
	}()

	conn, err := from.Dial(ctx, listener.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return seen, err
	}
	_ = conn.SetDeadline(deadline)
	_, err = conn.Write(make([]byte, verifyBytes))
	conn.Close()
	if err != nil {
		return seen, fmt.Errorf("send: %w", err)
	}
	return seen, <-received
}
