package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// grace is how long requests may continue after the end of ctx.
const grace = 5 * time.Second

// New makes a server that slow clients cannot block. The longest request is the ADD of a pod.
func New(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 30 * time.Second,
	}
}

// Run runs a server until ctx ends and current requests are complete. It waits at most for grace: afterwards the
// caller may close what requests use.
func Run(ctx context.Context, l net.Listener, h http.Handler) error {
	s := New(h)
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		limited, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if s.Shutdown(limited) != nil {
			s.Close()
		}
	})
	err := s.Serve(l) // returns when the shutdown begins
	if !stop() {
		<-done
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
