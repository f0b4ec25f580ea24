package connectivity

import (
	"context"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// A dropped packet gets no reply, so a connection that must not work is tried for a while; one that has to work is
// tried until it does.
const (
	// attempt is how long one connection, or one datagram, may take: less than the timer of a TCP retransmission.
	attempt = 150 * time.Millisecond
	// refusedFor is how long what must not work is tried, worksWithin what has to work.
	refusedFor  = 3 * attempt
	worksWithin = 10 * attempt
)

// Places returns where a pod or a node is.
type Places func(name string) testbed.Place

// Connect tries whether a connection from a place to an address works: for as long as it takes to believe that it does
// not, or, if it is expected to work, longer. In doubt the result is the one that is not expected: a TCP connection
// that is established and delivers no byte in time counts as working if it must not work, and as not working if it has
// to. An error says that it could not be tried, which is no result.
func Connect(ctx context.Context, from testbed.Place, to netip.AddrPort, protocol corev1.Protocol, expected bool) (connected bool, err error) {
	return connection{from: from, to: to, protocol: protocol, expected: expected}.try(ctx)
}

// connection is one to try.
type connection struct {
	from     testbed.Place
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
	// On a busy machine one attempt may take the time of many.
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
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(attempt - time.Since(tried)): // also after one that was refused at once
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

// datagram sends one and waits for it to come back.
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
