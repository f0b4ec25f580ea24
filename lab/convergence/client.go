// Package convergence measures how long traffic takes to follow a change of Services or policies: a client in a pod makes
// connections until one reaches the wanted backend, or none gets a reply any more. The client is a process of its own,
// because socket programs apply to the processes of a cgroup.
package convergence

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Command is the name of the command that runs Answer. Only the bench uses it.
const Command = "bench-connect"

// AnyBackend is whichever backend replies. NoBackend is none: connections get no reply any more.
const (
	AnyBackend = -1
	NoBackend  = -2
)

// Answer reads requests of the bench, one a line, and replies to each, until its input ends.
func Answer(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var to string
		var want int
		var limit time.Duration
		if _, err := fmt.Sscan(lines.Text(), &to, &want, (*int64)(&limit)); err != nil {
			return fmt.Errorf("read request %q: %w", lines.Text(), err)
		}
		target, err := netip.ParseAddrPort(to)
		if err != nil {
			return fmt.Errorf("read request %q: %w", lines.Text(), err)
		}
		wait := until
		if want == NoBackend {
			wait = untilNone
		}
		at, err := wait(target, want, limit)
		reply := fmt.Sprintf("at %d", at.UnixNano())
		if err != nil {
			reply = "error " + err.Error()
		}
		if _, err := fmt.Fprintln(out, reply); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Client is a process that makes connections. Its methods are called from one goroutine.
type Client struct {
	netns   testbed.Netns
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Scanner
}

// Start starts a client in a namespace: this program again, with the command Command.
func Start(netns testbed.Netns) (*Client, error) {
	c := &Client{netns: netns}
	if err := c.start(); err != nil {
		return nil, fmt.Errorf("start the connecting client: %w", err)
	}
	return c, nil
}

func (c *Client) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, Command)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.netns.Start(cmd); err != nil {
		return err
	}
	c.cmd, c.in, c.answers = cmd, in, bufio.NewScanner(out)
	return nil
}

// Waiting is a pending reply of the client.
type Waiting struct{ client *Client }

// Begin makes the client connect to an address until a connection reaches the wanted backend, or, for NoBackend, until
// none gets a reply.
func (c *Client) Begin(to netip.AddrPort, want int, limit time.Duration) (Waiting, error) {
	if _, err := fmt.Fprintln(c.in, to, want, int64(limit)); err != nil {
		return Waiting{}, fmt.Errorf("send a request to the connecting client: %w", err)
	}
	return Waiting{c}, nil
}

// End waits for the result: the moment at which the wanted backend was reached, or, for NoBackend, at which the first
// connection without a reply began. The end of the context ends the client.
func (w Waiting) End(ctx context.Context) (time.Time, error) {
	defer context.AfterFunc(ctx, func() { _ = w.client.cmd.Process.Kill() })()
	if !w.client.answers.Scan() {
		if ctx.Err() != nil {
			return time.Time{}, ctx.Err()
		}
		return time.Time{}, errors.Join(errors.New("the connecting client has ended"), w.client.answers.Err())
	}
	word, rest, _ := strings.Cut(w.client.answers.Text(), " ")
	if word != "at" {
		return time.Time{}, errors.New(rest)
	}
	var nanoseconds int64
	if _, err := fmt.Sscan(rest, &nanoseconds); err != nil {
		return time.Time{}, fmt.Errorf("read reply %q: %w", rest, err)
	}
	return time.Unix(0, nanoseconds), nil
}

// Abandon ends the wait. It replaces the client's process, so that the old reply is not taken for a later one.
func (w Waiting) Abandon() error {
	_ = w.client.cmd.Process.Kill() // it may have ended already
	if err := w.client.Close(); err != nil {
		return err
	}
	if err := w.client.start(); err != nil {
		return fmt.Errorf("restart the connecting client: %w", err)
	}
	return nil
}

// Reach makes connections until one reaches the wanted backend.
func (c *Client) Reach(ctx context.Context, to netip.AddrPort, want int, limit time.Duration) (time.Time, error) {
	w, err := c.Begin(to, want, limit)
	if err != nil {
		return time.Time{}, err
	}
	return w.End(ctx)
}

// Close ends the client.
func (c *Client) Close() error {
	c.in.Close()
	for c.answers.Scan() { // late replies
	}
	if err := c.cmd.Wait(); err != nil && c.cmd.ProcessState.Exited() { // Abandon or End killed it otherwise
		return fmt.Errorf("connecting client: %w", err)
	}
	return nil
}
