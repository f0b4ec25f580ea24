package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/convergence"
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
	for _, port := range Ports[corev1.ProtocolTCP] {
		listener, err := convergence.Listen(ctx, netns, netip.AddrPortFrom(address, port), 1)
		if err != nil {
			return end, err
		}
		closers = append(closers, listener.Close)
	}
	for _, port := range Ports[corev1.ProtocolUDP] {
		var conn net.PacketConn
		if err := netns.Do(func() (err error) {
			conn, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp", netip.AddrPortFrom(address, port).String())
			return err
		}); err != nil {
			return end, fmt.Errorf("listen at %s: %w", address, err)
		}
		closers = append(closers, conn.Close)
		go echo(conn)
	}
	return end, nil
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
