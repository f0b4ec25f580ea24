// Package httpserve runs the agent's HTTP servers: bounded in time, and behind the API server's authorization where they listen beyond the node.
package httpserve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Authority decides who may read a path. Only an API server can.
type Authority interface {
	// Allowed gives the user of a bearer token, empty if the token is invalid, and whether the user may get a path.
	Allowed(ctx context.Context, token, path string) (user string, allowed bool, err error)
}

const (
	// allowedFor and refusedFor are how long a review of a token is cached: the API server is not called for each scrape.
	allowedFor, refusedFor = time.Minute, 10 * time.Second
	// reviewsCached bounds the cache.
	reviewsCached = 128
	// reviewsAtOnce and reviewInterval bound the reviews that unknown clients can cause.
	reviewsAtOnce  = 10
	reviewInterval = time.Second
	reviewTime     = 5 * time.Second
)

// authorizer serves requests that the Authority allows.
type authorizer struct {
	authority Authority
	next      http.Handler
	limit     *rate.Limiter
	now       func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]review // by hash: tokens are not kept
}

type review struct {
	// status is http.StatusOK if the user may read.
	status int
	until  time.Time
}

// Authorize serves requests that the Authority allows, and rejects all others.
func Authorize(a Authority, next http.Handler) http.Handler { return newAuthorizer(a, next) }

func newAuthorizer(a Authority, next http.Handler) *authorizer {
	return &authorizer{authority: a, next: next, limit: rate.NewLimiter(rate.Every(reviewInterval), reviewsAtOnce), now: time.Now, known: map[[sha256.Size]byte]review{}}
}

// ServeHTTP implements http.Handler.
func (d *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
		return
	}
	status, err := d.check(r.Context(), token, r.URL.Path)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case status != http.StatusOK:
		http.Error(w, http.StatusText(status), status)
	default:
		d.next.ServeHTTP(w, r)
	}
}

// check gives the status for a token.
func (d *authorizer) check(ctx context.Context, token, path string) (status int, err error) {
	key := sha256.Sum256([]byte(path + " " + token))
	d.mu.Lock()
	a, known := d.known[key]
	d.mu.Unlock()
	if known && d.now().Before(a.until) {
		return a.status, nil
	}
	if !d.limit.Allow() {
		return 0, fmt.Errorf("too many tokens to review; try again")
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	user, allowed, err := d.authority.Allowed(ctx, token, path)
	if err != nil {
		return 0, fmt.Errorf("review token: %w", err)
	}
	a = review{http.StatusForbidden, d.now().Add(refusedFor)}
	switch {
	case user == "":
		a.status = http.StatusUnauthorized
	case allowed:
		a = review{http.StatusOK, d.now().Add(allowedFor)}
	}
	d.remember(key, a)
	return a.status, nil
}

func (d *authorizer) remember(key [sha256.Size]byte, a review) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= reviewsCached {
		clear(d.known) // they are reviewed again
	}
	d.known[key] = a
}

// IsBeyondNode says whether other hosts than the node can reach a listening address.
func IsBeyondNode(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// TLS makes a listener speak TLS with a self-signed certificate, made at each start: tokens are sent encrypted, and
// nodes need no certificates.
func TLS(l net.Listener, node string) (net.Listener, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: node}, DNSNames: []string{node}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
	}), nil
}
