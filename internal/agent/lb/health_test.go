package lb

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/httpserve"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// freePort gives a port of the loopback address without a listener.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

func TestHealthCheckNodePort(t *testing.T) {
	working := true
	h := newHealthServers(func() bool { return working })
	defer h.close()
	web := cluster.Key{Namespace: "default", Name: "web"}
	port := freePort(t)
	// Only loopback addresses are available here, and sync never serves those: start bypasses it.
	start := func(endpoints int) []string {
		key := healthKey{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port), web}
		if h.servers[key] == nil {
			if err := h.start(key); err != nil {
				return []string{err.Error()}
			}
		}
		h.servers[key].endpoints.Store(int64(endpoints))
		return nil
	}
	if problems := h.sync([]netip.Addr{netip.MustParseAddr("127.0.0.2")}, []service.Health{{Service: web, Port: port, Endpoints: 1}}); problems != nil || len(h.servers) != 0 {
		t.Errorf("listens at a loopback address: %v", problems)
	}
	for _, c := range []struct {
		endpoints int
		working   bool
		status    int
	}{{2, true, 200}, {0, true, 503}, {1, false, 503}, {1, true, 200}} {
		if problems := start(c.endpoints); problems != nil {
			t.Fatal(problems)
		}
		working = c.working
		response, err := http.Get(fmt.Sprintf("http://127.0.0.2:%d/anything", port))
		if err != nil {
			t.Fatal(err)
		}
		var n healthAnswer
		err = json.NewDecoder(response.Body).Decode(&n)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if weight := response.Header.Get("X-Load-Balancing-Endpoint-Weight"); response.StatusCode != c.status || weight != fmt.Sprint(c.endpoints) {
			t.Errorf("%+v: status %d, weight %q", c, response.StatusCode, weight)
		}
		if n.Service.Namespace != "default" || n.Service.Name != "web" || n.LocalEndpoints != int64(c.endpoints) || n.ServiceProxyHealthy != c.working {
			t.Errorf("%+v: response %+v", c, n)
		}
	}
	if problems := h.sync(nil, nil); problems != nil {
		t.Error(problems)
	}
	if _, err := http.Get(fmt.Sprintf("http://127.0.0.2:%d/", port)); err == nil {
		t.Error("a deleted Service is still served")
	}
}

func TestHealthCheckNodePortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "192.0.2.250:0")
	if err == nil {
		l.Close()
		testenv.Missing(t, "this machine has 192.0.2.250, which the test needs to be absent")
	}
	h := newHealthServers(func() bool { return true })
	all := []service.Health{{Service: cluster.Key{Namespace: "default", Name: "web"}, Port: 32000, Endpoints: 1}}
	problems := h.sync([]netip.Addr{netip.MustParseAddr("192.0.2.250")}, all)
	if len(problems) != 1 || !strings.Contains(problems[0], "Service default/web") || !strings.Contains(problems[0], "192.0.2.250:32000") {
		t.Errorf("problems are %q", problems)
	}
	if problems := h.sync(nil, nil); problems != nil {
		t.Error(problems)
	}
}

func TestProxyHealth(t *testing.T) {
	for name, c := range map[string]struct {
		working, eligible bool
		healthz, livez    int
	}{
		"all well":    {true, true, 200, 200},
		"about to go": {true, false, 503, 200},
		"not begun":   {false, true, 503, 503},
		"neither":     {false, false, 503, 503},
	} {
		handler := proxyHealth(func() bool { return c.working }, func() bool { return c.eligible }, func() time.Time { return time.Unix(1, 0) })
		for path, want := range map[string]int{"/healthz": c.healthz, "/livez": c.livez} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			var n proxyAnswer
			if err := json.NewDecoder(w.Body).Decode(&n); err != nil {
				t.Fatal(err)
			}
			if w.Code != want || n.CurrentTime.IsZero() || (want == 200) != (n.LastUpdated == n.CurrentTime) {
				t.Errorf("%s: %s answers %d, %+v; want %d", name, path, w.Code, n, want)
			}
			if (n.NodeEligible != nil) != (path == "/healthz") {
				t.Errorf("%s: %s reports the node: %v", name, path, n.NodeEligible)
			}
		}
	}
}

// Without --nodeport-addresses load balancers may use any address, also of IPv4.
func TestHealthCheckNodePortEverywhere(t *testing.T) {
	h := newHealthServers(func() bool { return true })
	h.everywhere = true
	defer h.close()
	port := freePort(t)
	web := service.Health{Service: cluster.Key{Namespace: "default", Name: "web"}, Port: port, Endpoints: 1}
	if problems := h.sync(nil, []service.Health{web}); problems != nil {
		t.Fatal(problems)
	}
	response, err := http.Get(fmt.Sprintf("http://127.0.0.2:%d/", port))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
}

func TestServersEndSlowConnections(t *testing.T) {
	if s := httpserve.New(nil); s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.WriteTimeout == 0 || s.IdleTimeout == 0 {
		t.Errorf("a timeout is missing: %+v", s)
	}
}
