package agentapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// stream sends a request and passes every line of the response to each, until the agent ends the connection, by
// stopping or when it is killed: ErrNoAgent.
func stream[Line any](ctx context.Context, c *Client, path string, req any, each func(Line) error) error {
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode request %s: %w", path, err)
	}
	conn, err := c.send(ctx, "POST", path, body)
	if err != nil {
		return fmt.Errorf("call agent at %s: %w", c.socket, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	in := bufio.NewReader(conn)
	status, length, err := readHead(in)
	if err != nil {
		return fmt.Errorf("call agent at %s: %w", c.socket, brokenError(ctx, err))
	}
	if status != 200 {
		response, err := readBody(in, length)
		if err != nil {
			return fmt.Errorf("call agent at %s: %w", c.socket, brokenError(ctx, err))
		}
		return c.responseError(path, status, response)
	}
	lines := json.NewDecoder(in)
	for {
		var line Line
		if err := lines.Decode(&line); err != nil {
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) && ctx.Err() == nil {
				return fmt.Errorf("decode response to %s: %w", path, err)
			}
			return fmt.Errorf("follow agent at %s: %w", c.socket, brokenError(ctx, err))
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

// send opens a connection and sends one request over it. The caller closes it.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, dialError(ctx, err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	request := fmt.Sprintf("%s %s HTTP/1.0\r\nHost: beeline\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, len(body), body)
	if _, err := io.WriteString(conn, request); err != nil {
		conn.Close()
		return nil, brokenError(ctx, err)
	}
	return conn, nil
}
