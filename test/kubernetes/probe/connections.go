package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const connectionGap = 10 * time.Millisecond

// connections opens a TCP connection, asks, and closes it, up to a hundred times each second.
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
	if err := sentOnce(conn.(*net.TCPConn)); err != nil {
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

// sentOnce fails for a connection whose first packet or its answer was lost: it came about by another one, a second later.
func sentOnce(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err = errors.Join(failed, err); err == nil && info.Total_retrans > 0 {
		err = fmt.Errorf("SYN was sent %d times", info.Total_retrans+1)
	}
	return err
}
