package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/handshake"
)

// connections opens a TCP connection, sends a request and closes it, up to a hundred times a second.
type connections struct {
	name     string
	server   net.Listener
	stopping atomic.Bool
	result   chan error
	made     int
	slowest  time.Duration
}

const connectionGap = 10 * time.Millisecond

func startConnections(name string, from, to testbed.Netns, address netip.Addr) (*connections, error) {
	c := &connections{name: name, result: make(chan error, 1)}
	err := to.Do(func() (err error) {
		c.server, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go c.serve()
	go func() { c.result <- from.Do(c.repeat) }() // keeps its thread in the namespace
	return c, nil
}

func (c *connections) serve() {
	for {
		conn, err := c.server.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn) // the client checks the reply
		}()
	}
}

func (c *connections) repeat() error {
	message := make([]byte, requestSize)
	for !c.stopping.Load() {
		begin := time.Now()
		if err := c.once(message); err != nil {
			return fmt.Errorf("%s: connection %d: %w", c.name, c.made, err)
		}
		c.made++
		c.slowest = max(c.slowest, time.Since(begin))
		time.Sleep(connectionGap)
	}
	return nil
}

func (c *connections) once(message []byte) error {
	conn, err := net.DialTimeout("tcp", c.server.Addr().String(), connectTime)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := handshake.SentOnce(conn.(*net.TCPConn)); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(message); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, message)
	return err
}

func (c *connections) finish() error {
	c.stopping.Store(true)
	err := <-c.result
	c.server.Close()
	return err
}

func (c *connections) String() string {
	return fmt.Sprintf("%s: %d connections, the slowest %s", c.name, c.made, c.slowest.Round(10*time.Microsecond))
}
