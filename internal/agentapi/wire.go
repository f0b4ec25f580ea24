package agentapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"syscall"
	"time"
)

// decoder decodes the next JSON value of a response.
type decoder func(into any) error

// exchange sends one HTTP/1.0 request over its own connection and passes the body of a response 200 to read. With
// version 1.0 the server neither chunks the body nor keeps the connection, which leaves only a status line, headers and
// a body to implement; a body that is cut off is no JSON. net/http would do this too, but TLS and HTTP/2 cost 3.6 MB of
// binary and 0.4 ms at each start of the plugin, a third of its start.
func (c *Client) exchange(ctx context.Context, path string, req any, read func(decoder) error) error {
	method, body := "GET", []byte(nil)
	if req != nil {
		var err error
		if body, err = json.Marshal(req); err != nil {
			return fmt.Errorf("encode request %s: %w", path, err)
		}
		method = "POST"
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return c.callError(dialError(ctx, err))
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.0\r\nHost: beeline\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, len(body), body); err != nil {
		return c.callError(brokenError(ctx, err))
	}
	in := textproto.NewReader(bufio.NewReader(conn))
	line, err := in.ReadLine()
	if err != nil {
		return c.callError(brokenError(ctx, err))
	}
	status := 0
	if _, err := fmt.Sscanf(line, "HTTP/1.%d %d", new(int), &status); err != nil {
		return c.callError(fmt.Errorf("response is not HTTP: %q", line))
	}
	if _, err := in.ReadMIMEHeader(); err != nil {
		return c.callError(brokenError(ctx, err))
	}
	values := json.NewDecoder(in.R)
	decode := func(into any) error {
		err := values.Decode(into)
		var network net.Error
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &network):
			return fmt.Errorf("decode response to %s: %w", path, err)
		}
		return c.callError(brokenError(ctx, err))
	}
	if status == 200 {
		return read(decode)
	}
	var failure Error
	if err := decode(&failure); err != nil {
		return err
	}
	if failure.Message == "" {
		return Errorf(CodeInternal, "agent at %s responded to %s with status %d", c.socket, path, status)
	}
	return &failure
}

func (c *Client) callError(err error) error { return fmt.Errorf("call agent at %s: %w", c.socket, err) }

func dialError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, absent := range []error{syscall.ENOENT, syscall.ENOTDIR, syscall.ECONNREFUSED} {
		if errors.Is(err, absent) {
			return fmt.Errorf("%w: %w", ErrNoAgent, absent)
		}
	}
	return err
}

// brokenError explains a connection that ended in the middle of an exchange.
func brokenError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: connection lost: %w", ErrNoAgent, err)
}
