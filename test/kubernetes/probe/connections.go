package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/beeline-cni/beeline/test/handshake"
)

const connectionGap = 10 * time.Millisecond

// connections opens a TCP connection, sends a request, and closes it, up to a hundred times each second.
type connections struct {
	progress
	address string
}

func newConnections(address string) *connections {
	return &connections{progress{state: loadReport{Name: "connections to " + address}}, address}
}

func (c *connections) run(ctx context.Context) {
	first, err := dialFirst(ctx, "tcp", c.address)
	if err != nil {
		c.fail(err)
		return
	}
	first.Close()
	for n := 0; ctx.Err() == nil; n++ {
		begin := time.Now()
		if err := connectOnce(c.address); err != nil {
			c.fail(fmt.Errorf("connection %d: %w", n, err))
		} else {
			c.done(1, time.Since(begin))
		}
		time.Sleep(connectionGap)
	}
}

func connectOnce(address string) error {
	conn, err := net.DialTimeout("tcp", address, answerTime)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := handshake.SentOnce(conn.(*net.TCPConn)); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	message := make([]byte, requestSize)
	if _, err := conn.Write(message); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, message)
	return err
}
