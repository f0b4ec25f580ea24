package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Listen runs servers on all Ports of an address in a namespace until the returned function is called.
func Listen(ctx context.Context, netns testbed.Netns, address netip.Addr) (end func(), err error) {
	var closers []func() error
	end = func() {
		for _, closer := range closers {
			_ = closer()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	var config net.ListenConfig
	for _, port := range Ports[corev1.ProtocolTCP] {
		var listener net.Listener
		if err := netns.Do(func() (err error) {
			listener, err = config.Listen(ctx, "tcp", netip.AddrPortFrom(address, port).String())
			return err
		}); err != nil {
			return end, fmt.Errorf("listen at %s: %w", address, err)
		}
		closers = append(closers, listener.Close)
		go greet(listener)
	}
	for _, port := range Ports[corev1.ProtocolUDP] {
		var conn net.PacketConn
		if err := netns.Do(func() (err error) {
			conn, err = config.ListenPacket(ctx, "udp", netip.AddrPortFrom(address, port).String())
			return err
		}); err != nil {
			return end, fmt.Errorf("listen at %s: %w", address, err)
		}
		closers = append(closers, conn.Close)
		go echo(conn)
	}
	return end, nil
}

// greet sends a byte on each connection.
func greet(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: silence would count as denied
			time.Sleep(time.Millisecond)
			continue
		}
		_, _ = conn.Write([]byte{1}) // the client may be gone
		conn.Close()
	}
}

// echo sends datagrams back.
func echo(conn net.PacketConn) {
	buffer := make([]byte, 64)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP error for an earlier reply
		}
		_, _ = conn.WriteTo(buffer[:n], from)
	}
}
