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
	limit, once := refusedFor, q.connect
	if q.expected {
		limit = worksWithin
	}
	if q.protocol == corev1.ProtocolUDP {
		once = q.datagram
	}
	// On a busy machine one attempt may take long.
	begin := time.Now()
	for tries := time.Duration(0); tries < limit/attempt || time.Since(begin) < limit; tries++ {
		tried := time.Now()
		got, err := once(ctx)
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

// connect makes one TCP connection and waits for its byte.
func (q connection) connect(ctx context.Context) (got reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	err = q.from.Do(func() error {
		var dialer net.Dialer
		if q.source != 0 {
			dialer.LocalAddr = &net.TCPAddr{Port: int(q.source)}
		}
		conn, err := dialer.DialContext(ctx, "tcp", q.to.String())
		if err != nil {
			return q.outcome(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetLinger(0) // no port stays in TIME_WAIT
		deadline, _ := ctx.Deadline()
		_ = conn.SetDeadline(deadline)
		if _, err = conn.Read(make([]byte, 1)); err != nil {
			got = opened
			return q.outcome(err)
		}
		got = answer
		return nil
	})
	return got, err
}

// datagram sends a datagram and waits for its echo.
func (q connection) datagram(ctx context.Context) (got reply, err error) {
	err = q.from.Do(func() error {
		var dialer net.Dialer
		if q.source != 0 {
			dialer.LocalAddr = &net.UDPAddr{Port: int(q.source)}
		}
		conn, err := dialer.DialContext(ctx, "udp", q.to.String())
		if err != nil {
			return q.outcome(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(attempt))
		if _, err := conn.Write([]byte("ping")); err != nil {
			return q.outcome(err)
		}
		if _, err = conn.Read(make([]byte, 64)); err != nil {
			return q.outcome(err)
		}
		got = answer
		return nil
	})
	return got, err
}
