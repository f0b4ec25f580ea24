package connectivity

import (
	"context"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// How long is waited. A packet that is dropped is answered by nothing, so what must not work is tried for a while; what has
// to work is tried until it does.
const (
	// attempt is how long one connection, or one datagram, may take: less than TCP waits until it sends again.
	attempt = 150 * time.Millisecond
	// refusedFor is how long what must not work is tried, worksWithin what has to work.
	refusedFor  = 3 * attempt
	worksWithin = 10 * attempt
)

// Places gives where a pod of the cast is, or a node.
type Places func(name string) testbed.Place

// Ask tries whether a place is answered at an address: for as long as it takes to believe that it is not, or, if it is
// expected to be, longer. In doubt the answer is the one that is not expected: a connection that comes about and has no byte in time is
// answered if it must not be, and not answered if it has to be. An error says that it could not be tried, which is no answer.
func Ask(ctx context.Context, from testbed.Place, to netip.AddrPort, protocol corev1.Protocol, expected bool) (answered bool, err error) {
	return inquiry{from: from, to: to, protocol: protocol, expected: expected}.ask(ctx)
}

// inquiry is what Ask has to find out.
type inquiry struct {
	from     testbed.Place
	to       netip.AddrPort
	protocol corev1.Protocol
	expected bool
	// source is the port that it is asked from; 0 is any.
	source uint16
}

// reply is what one attempt has led to; zero is silence.
type reply int

const (
	// opened is a TCP connection that sends nothing.
	opened reply = iota + 1
	answer
)

func (q inquiry) ask(ctx context.Context) (answered bool, err error) {
	limit, once := refusedFor, q.connect
	if q.expected {
		limit = worksWithin
	}
	if q.protocol == corev1.ProtocolUDP {
		once = q.datagram
	}
	// On a busy machine one attempt may take the time of many: as many are made as there is time for.
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
		case <-time.After(attempt - time.Since(tried)): // one that was refused at once is no reason to hurry
		}
	}
	return false, nil
}

// connect makes one TCP connection and waits for its byte.
func (q inquiry) connect(ctx context.Context) (got reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	err = q.from.Do(func() error {
		var dialer net.Dialer
		if q.source != 0 {
			dialer.LocalAddr = &net.TCPAddr{Port: int(q.source)}
		}
		conn, err := dialer.DialContext(ctx, "tcp", q.to.String())
		if err != nil {
			return q.judge(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetLinger(0) // no port rests
		deadline, _ := ctx.Deadline()
		_ = conn.SetDeadline(deadline)
		if _, err = conn.Read(make([]byte, 1)); err != nil {
			got = opened
			return q.judge(err)
		}
		got = answer
		return nil
	})
	return got, err
}

// datagram sends one and waits for it to come back.
func (q inquiry) datagram(ctx context.Context) (got reply, err error) {
	err = q.from.Do(func() error {
		var dialer net.Dialer
		if q.source != 0 {
			dialer.LocalAddr = &net.UDPAddr{Port: int(q.source)}
		}
		conn, err := dialer.DialContext(ctx, "udp", q.to.String())
		if err != nil {
			return q.judge(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(attempt))
		if _, err := conn.Write([]byte("asks")); err != nil {
			return q.judge(err)
		}
		if _, err = conn.Read(make([]byte, 64)); err != nil {
			return q.judge(err)
		}
		got = answer
		return nil
	})
	return got, err
}
