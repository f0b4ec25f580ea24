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
	metrics := a.metrics.handler()
	if isBeyondNode(a.config.MetricsAddress) {
		asked, ok := a.reporter.(authority)
		if !ok {
			return errors.Join(fmt.Errorf("--metrics-address %s: others than the node can read there, and only an API server could say who may; use 127.0.0.1", a.config.MetricsAddress), l.Close())
		}
		metrics = newDoorkeeper(asked, metrics)
		if l, err = encrypted(l, a.config.NodeName); err != nil {
			return fmt.Errorf("serve metrics by TLS: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	a.addProbes(mux, time.Now)
	return serve(ctx, l, mux)
}

// addProbes has the kubelet's probes answered. Neither waits for the agent's lock: one that is held for long is what /healthz is to find.
func (a *Agent) addProbes(mux *http.ServeMux, now func() time.Time) {
	answer := func(w http.ResponseWriter, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.beats.Stuck(now())) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, a.Ready(r.Context())) })
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
