package truth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/topology"
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
type Places func(name string) topology.Place

// Listen answers at all Ports of an address at a place until the returned function is called.
func Listen(ctx context.Context, place topology.Place, address netip.Addr) (end func(), err error) {
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
		if err := place.Do(func() (err error) {
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
		if err := place.Do(func() (err error) {
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

// greet sends a byte to whoever connects.
func greet(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		_, _ = conn.Write([]byte{1}) // a client that has gone needs none
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
			continue // an earlier answer that did not arrive
		}
		_, _ = conn.WriteTo(buffer[:n], from)
	}
}

// Ask tries whether a place is answered at an address: for as long as it takes to believe that it is not, or, if it is
// expected to be, longer.
func Ask(ctx context.Context, from topology.Place, to netip.AddrPort, protocol corev1.Protocol, expected bool) (answered bool, err error) {
	limit := refusedFor
	if expected {
		limit = worksWithin
	}
	once := connect
	if protocol == corev1.ProtocolUDP {
		once = datagram
	}
	for begin := time.Now(); time.Since(begin) < limit; {
		tried := time.Now()
		if answered, err = once(ctx, from, to); answered || err != nil {
			return answered, err
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
func connect(ctx context.Context, from topology.Place, to netip.AddrPort) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	err = from.Do(func() error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		if err != nil {
			if isNetwork(err) {
				return nil // nobody answers
			}
			return err
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetLinger(0) // no port rests
		deadline, _ := ctx.Deadline()
		_ = conn.SetDeadline(deadline)
		_, err = conn.Read(make([]byte, 1))
		answered = err == nil
		return nil
	})
	return answered, err
}

// datagram sends one and waits for it to come back.
func datagram(ctx context.Context, from topology.Place, to netip.AddrPort) (answered bool, err error) {
	err = from.Do(func() error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(attempt))
		if _, err := conn.Write([]byte("asks")); err != nil {
			if isNetwork(err) {
				return nil
			}
			return err
		}
		_, err = conn.Read(make([]byte, 64))
		answered = err == nil
		return nil
	})
	return answered, err
}

// isNetwork says whether an error is what the network answers, not what the place lacks.
func isNetwork(err error) bool {
	var of *net.OpError
	return errors.As(err, &of) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

const (
	// patience is how long policies may take to be in force.
	patience = 20 * time.Second
	// When all answers are right for the first time, everything is asked again so often, each time after a pause: an answer that
	// changes from one time to the next is a wrong one.
	confirmations = 2
	pause         = 500 * time.Millisecond
)

// Answers asks all questions, all at once, and again while any answer is wrong and there is patience left: policies take
// a while to be in force. Then it asks again, and what was answered wrongly any of these times counts as wrong.
func Answers(ctx context.Context, questions []Question, place Places, address Address) (answers []bool, err error) {
	for begin := time.Now(); ; {
		answers, err = pass(ctx, questions, place, address)
		if err != nil {
			return answers, err
		}
		if allRight(questions, answers) || time.Since(begin) > patience {
			break
		}
	}
	for range confirmations {
		select {
		case <-ctx.Done():
			return answers, ctx.Err()
		case <-time.After(pause):
		}
		again, err := pass(ctx, questions, place, address)
		if err != nil {
			return answers, err
		}
		for i, q := range questions {
			if again[i] != q.Want {
				answers[i] = again[i]
			}
		}
	}
	return answers, nil
}

// pass asks every question once, all at the same time.
func pass(ctx context.Context, questions []Question, place Places, address Address) ([]bool, error) {
	answers, errs := make([]bool, len(questions)), make([]error, len(questions))
	var wait sync.WaitGroup
	for i, q := range questions {
		wait.Go(func() {
			answers[i], errs[i] = Ask(ctx, place(q.From), netip.AddrPortFrom(address(q.To), q.Port), q.Protocol, q.Want)
			if errs[i] != nil {
				errs[i] = fmt.Errorf("ask from %s to %s: %w", q.From, q.To, errs[i])
			}
		})
	}
	wait.Wait()
	return answers, errors.Join(errs...)
}

func allRight(questions []Question, answers []bool) bool {
	for i, q := range questions {
		if answers[i] != q.Want {
			return false
		}
	}
	return true
}
