package network

import (
	"bytes"
	"context"
	"errors"
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

// verifyPort is where the receiver listens.
const verifyPort = 7099

// Verify proves that a pod reaches another over every address family: a TCP connection carries data that
// fills whole packets, in both directions, and arrives from the sender's own address. The error names network, pods and what
// went wrong.
func Verify(ctx context.Context, c Network, from, to *testbed.Pod) error {
	if len(from.Addresses) != len(to.Addresses) {
		return fmt.Errorf("%s: %s has addresses %v, %s has %v", c.Name(), from.Name, from.Addresses, to.Name, to.Addresses)
	}
	for i, address := range to.Addresses {
		at := netip.AddrPortFrom(address, verifyPort)
		seen, err := Exchange(ctx, from.Netns, at, to.Netns, at)
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

// Exchange sends data from a namespace to a target, which leads to an address in another, and wants all of it back. It
// returns the sender's address as the receiver sees it.
func Exchange(ctx context.Context, from testbed.Netns, target netip.AddrPort, to testbed.Netns, at netip.AddrPort) (seen netip.Addr, err error) {
	return exchange(ctx, from, target, to, at, make([]byte, verifyBytes))
}

func exchange(ctx context.Context, from testbed.Netns, target netip.AddrPort, to testbed.Netns, at netip.AddrPort, payload []byte) (seen netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	deadline, _ := ctx.Deadline()

	listener, err := to.Listen(ctx, at)
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
		_, err = io.Copy(conn, conn)
		received <- err
	}()

	conn, err := from.Dial(ctx, target)
	if err != nil {
		return seen, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(deadline)
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(payload)
		sent <- errors.Join(err, conn.(*net.TCPConn).CloseWrite())
	}()
	back, err := io.ReadAll(conn)
	if err := errors.Join(err, <-sent, <-received); err != nil {
		return seen, err
	}
	if !bytes.Equal(back, payload) {
		return seen, fmt.Errorf("%d of %d bytes came back, or others than were sent", len(back), len(payload))
	}
	return seen, nil
}
