package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// serveMetrics answers scrapers and probes until ctx ends.
func (a *Agent) serveMetrics(ctx context.Context) error {
	if a.config.MetricsAddress == "" {
		<-ctx.Done()
		return nil
	}
	l, err := net.Listen("tcp", a.config.MetricsAddress)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics.handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := a.Ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return serve(ctx, l, mux)
}

// grace is how long requests under way may go on after the end of ctx.
const grace = 5 * time.Second

// newServer makes a server that nobody of the world can keep busy by being slow. An answer is the ADD of a pod at the longest.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 30 * time.Second,
	}
}

// serve runs a server until ctx ends and the requests under way are answered, for which it waits no longer than
// grace: what they use may be closed once it has returned.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := newServer(h)
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
