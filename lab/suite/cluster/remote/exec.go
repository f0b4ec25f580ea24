package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// Process is a command that runs in a container.
type Process struct {
	// In is its standard input, Out its standard output.
	In  io.WriteCloser
	Out io.Reader

	cancel context.CancelFunc
	ended  chan struct{}
	err    error // once ended is closed
}

// Start starts a command in a container. The process ends with the context. The caller must call Close. Errors, also
// of starting, end the reads, and Close returns them.
func (c *Client) Start(ctx context.Context, namespace, pod, container string, command ...string) (*Process, error) {
	request := c.core.Post().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdin: true, Stdout: true, Stderr: true}, c.params)
	// Try WebSocket first, as kubectl does; older API servers and proxies speak SPDY.
	socket, err := remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, request.URL().String())
	if err != nil {
		return nil, fmt.Errorf("run %s in pod %s: %w", command[0], pod, err)
	}
	old, err := remotecommand.NewSPDYExecutor(c.config, http.MethodPost, request.URL())
	if err != nil {
		return nil, fmt.Errorf("run %s in pod %s: %w", command[0], pod, err)
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, fmt.Errorf("run %s in pod %s: %w", command[0], pod, err)
	}
	// The client library logs every end of a stream as an error; the returned error is sufficient.
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	p := &Process{In: in, Out: out, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		var said lastBytes
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: &said})
		if err != nil && ctx.Err() == nil {
			p.err = fmt.Errorf("run %s in pod %s: %w%s", command[0], pod, err, said.suffix())
		}
		// Readers and writers return now: the process has ended.
		stdout.CloseWithError(p.err) // nil: end of file
		stdin.CloseWithError(p.err)
	}()
	return p, nil
}

// endWait is how long a process may take to exit after the end of its input.
const endWait = 3 * time.Second

// Close closes the input, which ends most commands; after endWait it ends the stream. It waits for the end of the
// stream and returns its error, unless Close itself ended it.
func (p *Process) Close() error {
	_ = p.In.Close()
	go func() { _, _ = io.Copy(io.Discard, p.Out) }() // unread output must not block the stream
	select {
	case <-p.ended:
	case <-time.After(endWait):
	}
	p.cancel()
	<-p.ended
	return p.err
}

// lastBytes keeps the end of a process's standard error.
type lastBytes struct{ buffer bytes.Buffer }

func (b *lastBytes) Write(p []byte) (int, error) {
	const most = 1024
	b.buffer.Write(p)
	if extra := b.buffer.Len() - most; extra > 0 {
		b.buffer.Next(extra)
	}
	return len(p), nil
}

func (b *lastBytes) suffix() string {
	text := strings.Join(strings.Fields(b.buffer.String()), " ")
	if text == "" {
		return ""
	}
	return ": " + text
}
