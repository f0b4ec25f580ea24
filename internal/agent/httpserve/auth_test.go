package httpserve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// someAuthority allows by the token, and counts the reviews.
type someAuthority struct {
	reviews int
	down    error
}

func (a *someAuthority) Allowed(_ context.Context, token, path string) (user string, allowed bool, err error) {
	a.reviews++
	if a.down != nil {
		return "", false, a.down
	}
	switch token {
	case "prometheus":
		return "prometheus", path == "/metrics", nil
	case "guest":
		return "guest", false, nil
	}
	return "", false, nil
}

// Only users that the API server allows may read. It is not called for each scrape, nor as often as unknown clients
// like. Without it only users that it allowed before may read.
func TestDoorkeeper(t *testing.T) {
	a := &someAuthority{}
	now := time.Now()
	d := newAuthorizer(a, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "beeline_ready 1") }))
	d.now = func() time.Time { return now }
	get := func(header string, want int) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Code != want || strings.Contains(w.Body.String(), "beeline_ready") != (want == http.StatusOK) {
			t.Errorf("with %q: %d %s, want %d", header, w.Code, w.Body, want)
		}
	}
	get("", http.StatusUnauthorized)
	get("Basic cHJvbWV0aGV1cw==", http.StatusUnauthorized)
	get("Bearer ", http.StatusUnauthorized)
	if a.reviews != 0 {
		t.Errorf("%d reviews without a token", a.reviews)
	}
	for range 5 {
		get("Bearer prometheus", http.StatusOK)
		get("Bearer guest", http.StatusForbidden)
		get("Bearer forged", http.StatusUnauthorized)
	}
	if a.reviews != 3 {
		t.Errorf("%d reviews for 3 tokens", a.reviews)
	}
	a.down = errors.New("no route to host")
	get("Bearer prometheus", http.StatusOK) // still
	now = now.Add(allowedFor + time.Second)
	get("Bearer prometheus", http.StatusServiceUnavailable)
	a.down, a.reviews = nil, 0
	for i := range 10 * reviewsCached {
		d.ServeHTTP(httptest.NewRecorder(), func() *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Authorization", fmt.Sprint("Bearer stranger-", i))
			return r
		}())
	}
	if a.reviews > 2*reviewsAtOnce || len(d.known) > reviewsCached {
		t.Errorf("unknown clients caused %d reviews, %d are cached", a.reviews, len(d.known))
	}
}

// Beyond the node tokens need TLS, and without an API server no user is allowed.
func TestMetricsBeyondTheNode(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:9965": false, "[::1]:9965": false, "localhost:9965": false, "127.3.2.1:1": false,
		"0.0.0.0:9965": true, ":9965": true, "[::]:9965": true, "192.0.2.1:9965": true, "node.example.org:9965": true,
	} {
		if IsBeyondNode(address) != want {
			t.Errorf("%s: beyond the node %t, want %t", address, !want, want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure, err := TLS(l, "n1")
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })}
	go func() { _ = server.Serve(secure) }()
	defer server.Close()
	if r, err := http.Get("http://" + l.Addr().String()); err == nil {
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			t.Error("responds without TLS")
		}
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // signed by itself, as a scraper knows
	r, err := client.Get("https://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if said, err := io.ReadAll(r.Body); err != nil || string(said) != "ok" || r.TLS.PeerCertificates[0].Subject.CommonName != "n1" {
		t.Errorf("%s, %v", said, err)
	}
}
