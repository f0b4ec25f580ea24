package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Conn is the bench's side: the streams of a worker that runs somewhere. Its methods may be called from several
// goroutines; the calls are made one after the other.
type Conn struct {
	mu      sync.Mutex
	in      io.WriteCloser
	encoder *json.Encoder
	decoder *json.Decoder
	close   func() error
	broken  error
}

// NewConn speaks to the worker whose standard input and output these are. close is called once, after the input was
// closed: it should end the worker and wait for its end.
func NewConn(in io.WriteCloser, out io.Reader, close func() error) *Conn {
	return &Conn{in: in, encoder: json.NewEncoder(in), decoder: json.NewDecoder(out), close: sync.OnceValue(close)}
}

// Call asks and waits for the reply. The error is the worker's, or the context's or the connection's: after those the
// connection is closed and Broken.
func (c *Conn) Call(ctx context.Context, r Request) (Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return Reply{}, c.broken
	}
	if err := ctx.Err(); err != nil {
		return Reply{}, err
	}
	// Streams know no deadlines: an ended context closes them.
	stop := context.AfterFunc(ctx, func() { _ = c.shut() })
	defer stop()
	var reply Reply
	err := c.encoder.Encode(r)
	if err == nil {
		err = c.decoder.Decode(&reply)
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		if why := c.shut(); why != nil && ctx.Err() == nil {
			err = why // says more than that the stream has ended
		}
		c.broken = fmt.Errorf("ask worker: %w", err)
		return Reply{}, c.broken
	}
	if reply.Error != "" {
		return Reply{}, errors.New(reply.Error)
	}
	return reply, nil
}

// Broken reports whether all further calls fail.
func (c *Conn) Broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken != nil
}

func (c *Conn) shut() error {
	_ = c.in.Close()
	return c.close()
}

// Close ends the worker.
func (c *Conn) Close() error {
	err := c.shut()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = errors.New("ask worker: closed")
	}
	return err
}
