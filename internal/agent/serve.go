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

// serveMetrics serves scrapers and probes until ctx ends.
func (a *Agent) serveMetrics(ctx context.Context) error {
	l, err := net.Listen("tcp", a.config.MetricsAddress)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	metrics := a.metrics.handler()
	if httpserve.IsBeyondNode(a.config.MetricsAddress) {
		authority, ok := a.reporter.(httpserve.Authority)
		if !ok {
			return errors.Join(fmt.Errorf("--metrics-address %s: the address is reachable from other hosts, which only an API server can authorize; use 127.0.0.1", a.config.MetricsAddress), l.Close())
		}
		metrics = httpserve.Authorize(authority, metrics)
		if l, err = httpserve.TLS(l, a.config.NodeName); err != nil {
			return fmt.Errorf("serve metrics by TLS: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	a.addProbes(mux, time.Now)
	return httpserve.Run(ctx, l, mux)
}

// addProbes serves the kubelet's probes. They do not wait for the agent's lock: /healthz must detect one that is held
// for long.
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
