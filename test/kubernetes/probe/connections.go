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
func (l *load) connections(ctx context.Context) error {
	first, err := dialFirst(ctx, l.address)
	if err != nil {
		return err
	}
	first.Close()
	for n := 0; ctx.Err() == nil; n++ {
		begin := time.Now()
		if err := connectOnce(l.address); err != nil {
			l.fail(fmt.Errorf("connection %d: %w", n, err))
		} else {
			l.done(1, time.Since(begin))
		}
		time.Sleep(connectionGap)
	}
	return nil
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
	message := make([]byte, requestSize)
	patient := patientConn{conn, answerTime}
	if _, err := patient.Write(message); err != nil {
		return err
	}
	_, err = io.ReadFull(patient, message)
	return err
}
