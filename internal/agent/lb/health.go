package lb

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/httpserve"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
)

// healthServers serve the healthCheckNodePort of each Service that has one: external load balancers find the nodes
// with endpoints there. Responses are those of kube-proxy.
type healthServers struct {
	// working reports whether Services are in the datapath.
	working func() bool
	// everywhere listens on all addresses, as kube-proxy does without NodePort addresses.
	everywhere bool

	mu      sync.Mutex
	servers map[healthKey]*healthServer
}

// healthKey is the address and the Service of a server.
type healthKey struct {
	at      netip.AddrPort
	service cluster.Key
}

type healthServer struct {
	endpoints atomic.Int64
	server    *http.Server
}

func newHealthServers(working func() bool) *healthServers {
	return &healthServers{working: working, servers: map[healthKey]*healthServer{}}
}

// sync makes the servers those of these Services on these addresses. An address in use is a problem, and retried by
// the next call.
func (h *healthServers) sync(where []netip.Addr, all []service.Health) (problems []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.everywhere {
		where = []netip.Addr{netip.IPv6Unspecified()} // and IPv4: see net.Listen
	}
	wanted := map[healthKey]int{}
	for _, s := range all {
		for _, addr := range where {
			if !addr.IsLoopback() {
				wanted[healthKey{netip.AddrPortFrom(addr, s.Port), s.Service}] = s.Endpoints
			}
		}
	}
	for key, s := range h.servers {
		if _, ok := wanted[key]; !ok {
			s.server.Close()
			delete(h.servers, key)
		}
	}
	for _, s := range all {
		for _, addr := range where {
			key := healthKey{netip.AddrPortFrom(addr, s.Port), s.Service}
			endpoints, ok := wanted[key]
			if !ok {
				continue
			}
			if h.servers[key] == nil {
				if err := h.start(key); err != nil {
					problems = append(problems, fmt.Sprintf("Service %s: its healthCheckNodePort is not served: %v", s.Service, err))
					continue
				}
			}
			h.servers[key].endpoints.Store(int64(endpoints))
		}
	}
	return problems
}

// close ends all servers.
func (h *healthServers) close() { h.sync(nil, nil) }

func (h *healthServers) start(key healthKey) error {
	l, err := net.Listen("tcp", key.at.String())
	if err != nil {
		return err
	}
	s := &healthServer{}
	s.server = httpserve.New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h.answer(w, key.service, s.endpoints.Load()) }))
	go func() { _ = s.server.Serve(l) }() // until it is closed
	h.servers[key] = s
	return nil
}

// healthAnswer is kube-proxy's response.
type healthAnswer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int64 `json:"localEndpoints"`
	ServiceProxyHealthy bool  `json:"serviceProxyHealthy"`
}

func (h *healthServers) answer(w http.ResponseWriter, of cluster.Key, endpoints int64) {
	a := healthAnswer{LocalEndpoints: endpoints, ServiceProxyHealthy: h.working()}
	a.Service.Namespace, a.Service.Name = of.Namespace, of.Name
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(endpoints, 10))
	status := http.StatusOK
	if endpoints == 0 || !a.ServiceProxyHealthy {
		status = http.StatusServiceUnavailable
	}
	writeHealth(w, status, a)
}

func writeHealth(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "\t")
	_ = encoder.Encode(answer) // the client may be gone
}

// proxyAnswer is the response at kube-proxy's own address.
type proxyAnswer struct {
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	NodeEligible *bool     `json:"nodeEligible,omitempty"`
}

// proxyHealth responds as kube-proxy does at :10256. External load balancers check there whether this node forwards
// (/healthz), and probes whether it works (/livez). A node that is about to be removed works, but should get no new
// connections.
func proxyHealth(working, eligible func() bool, updated func() time.Time) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, good bool, eligible *bool) {
		a := proxyAnswer{LastUpdated: updated(), CurrentTime: time.Now(), NodeEligible: eligible}
		if !good {
			writeHealth(w, http.StatusServiceUnavailable, a)
			return
		}
		a.LastUpdated = a.CurrentTime // the table is current
		writeHealth(w, http.StatusOK, a)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		node := eligible()
		answer(w, working() && node, &node)
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, working(), nil) })
	return mux
}

// ServeProxyHealth serves proxyHealth until ctx ends. An address in use, for example while kube-proxy still runs, is
// reported to problem and retried.
func (s *Services) ServeProxyHealth(ctx context.Context, eligible func() bool, problem func(error)) error {
	const again = 10 * time.Second
	for {
		l, err := net.Listen("tcp", s.config.HealthzAddress)
		problem(err)
		if err == nil {
			return httpserve.Run(ctx, l, proxyHealth(s.Working, eligible, func() time.Time { return s.Status().Updated }))
		}
		if !loop.Sleep(ctx, again) {
			return nil
		}
	}
}
