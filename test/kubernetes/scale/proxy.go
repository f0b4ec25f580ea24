package main

import (
	"context"
	"io"
	"net"
	"sync/atomic"
)

// proxy is between the agent and the API server, and counts the bytes of the server.
type proxy struct {
	listener net.Listener
	received atomic.Int64
}

func startProxy(ctx context.Context, to string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go p.serve(client, to)
		}
	}()
	return p, nil
}

func (p *proxy) serve(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return // the agent tries again
	}
	defer server.Close()
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	}()
	_, _ = io.Copy(client, io.TeeReader(server, p))
}

// Write counts.
func (p *proxy) Write(b []byte) (int, error) {
	p.received.Add(int64(len(b)))
	return len(b), nil
}

func (p *proxy) url() string { return "https://" + p.listener.Addr().String() }
