package connectivity

import (
	"context"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

// A dropped packet gets no reply, so a denied connection is attempted for a while, and an allowed one until it succeeds.
const (
	// attempt is the timeout of one connection or datagram, shorter than the TCP retransmission timer.
	attempt = 150 * time.Millisecond
	// refusedFor is the timeout of denied connections, worksWithin that of allowed ones.
	refusedFor  = 3 * attempt
	worksWithin = 10 * attempt
)

// NetnsOf returns the network namespace of a pod or a node.
type NetnsOf func(name string) testbed.Netns

// Connect attempts a connection from there to an address, longer if it is expected to succeed. In doubt the result is
// the unexpected one: an established TCP connection without a byte counts as connected if it is not expected, and as not
// connected if it is. An error means that no attempt was possible, so there is no result.
func Connect(ctx context.Context, from testbed.Netns, to netip.AddrPort, protocol corev1.Protocol, expected bool) (connected bool, err error) {
	return connection{from: from, to: to, protocol: protocol, expected: expected}.try(ctx)
}

// connection is a connection to attempt.
type connection struct {
	from     testbed.Netns
	to       netip.AddrPort
	protocol corev1.Protocol
	expected bool
	// source is the source port; 0 is any.
	source uint16
}

// reply is the result of one attempt; zero is silence.
type reply int

const (
	// opened is a TCP connection that sends nothing.
	opened reply = iota + 1
	answer
)

func (q connection) try(ctx context.Context) (connected bool, err error) {
	limit := refusedFor
	if q.expected {
		limit = worksWithin
	}
	// On a busy machine one attempt may take long.
	begin := time.Now()
	for tries := time.Duration(0); tries < limit/attempt || time.Since(begin) < limit; tries++ {
		tried := time.Now()
		got, err := q.once(ctx)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			return false, err
		case got == answer || got == opened && !q.expected:
			return true, nil
		}
		if err := wait.For(ctx, attempt-time.Since(tried)); err != nil { // also after an attempt that fails at once
			return false, err
		}
	}
	return false, nil
}

// once makes one TCP connection and waits for its byte, or sends a datagram and waits for its echo.
func (q connection) once(ctx context.Context) (got reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	deadline, _ := ctx.Deadline()
	dialer, network := net.Dialer{LocalAddr: &net.TCPAddr{Port: int(q.source)}}, "tcp"
	if q.protocol == corev1.ProtocolUDP {
		dialer.LocalAddr, network = &net.UDPAddr{Port: int(q.source)}, "udp"
	}
	err = q.from.Do(func() error {
		conn, err := dialer.DialContext(ctx, network, q.to.String())
		if err != nil {
			return q.outcome(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(deadline)
		if tcp, ok := conn.(*net.TCPConn); ok {
			got = opened
			_ = tcp.SetLinger(0) // no port stays in TIME_WAIT
		} else if _, err := conn.Write([]byte("ping")); err != nil {
			return q.outcome(err)
		}
		if _, err := conn.Read(make([]byte, 64)); err != nil {
			return q.outcome(err)
		}
		got = answer
		return nil
	})
	return got, err
}
