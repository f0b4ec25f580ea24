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

func startProxy(ctx context.Context, o *options) (p *proxy, err error) {
	p = &proxy{}
	if err := o.node.Do(func() error {
		p.listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { p.listener.Close() })
	go func() {
		for {
			client, err := p.listener.Accept()
			if err != nil {
				return // closed
			}
			go p.serve(ctx, client, o)
		}
	}()
	return p, nil
}

func (p *proxy) serve(ctx context.Context, client net.Conn, o *options) {
	defer client.Close()
	server, err := o.dial(ctx, "tcp", serverAt)
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
