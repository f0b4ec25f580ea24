package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/httpserve"
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
	if httpserve.IsBeyondNode(a.config.MetricsAddress) {
		asked, ok := a.reporter.(httpserve.Authority)
		if !ok {
			return errors.Join(fmt.Errorf("--metrics-address %s: others than the node can read there, and only an API server could say who may; use 127.0.0.1", a.config.MetricsAddress), l.Close())
		}
		metrics = httpserve.Authorize(asked, metrics)
		if l, err = httpserve.TLS(l, a.config.NodeName); err != nil {
			return fmt.Errorf("serve metrics by TLS: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	a.addProbes(mux, time.Now)
	return httpserve.Run(ctx, l, mux)
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
