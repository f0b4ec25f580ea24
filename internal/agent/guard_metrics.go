package agent

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

// authority says who may read what. Only an API server can.
type authority interface {
	// Allowed tells whose a bearer token is, empty for nobody's, and whether he may get a path.
	Allowed(ctx context.Context, token, path string) (user string, allowed bool, err error)
}

const (
	// allowedFor and refusedFor are how long an answer about a token holds: the API server is not asked for each scrape.
	allowedFor, refusedFor = time.Minute, 10 * time.Second
	// answersKept bounds how many answers are remembered.
	answersKept = 128
	// reviewsAtOnce and reviewInterval bound what strangers can have the API server asked.
	reviewsAtOnce  = 10
	reviewInterval = time.Second
	reviewTime     = 5 * time.Second
)

// doorkeeper lets those read that the authority allows.
type doorkeeper struct {
	authority authority
	next      http.Handler
	limit     *rate.Limiter
	now       func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]answer // by token: what strangers send is not kept
}

type answer struct {
	// status is http.StatusOK for those who may read.
	status int
	until  time.Time
}

func newDoorkeeper(a authority, next http.Handler) *doorkeeper {
	return &doorkeeper{authority: a, next: next, limit: rate.NewLimiter(rate.Every(reviewInterval), reviewsAtOnce), now: time.Now, known: map[[sha256.Size]byte]answer{}}
}

// ServeHTTP implements http.Handler.
func (d *doorkeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
		return
	}
	status, err := d.ask(r.Context(), token, r.URL.Path)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case status != http.StatusOK:
		http.Error(w, http.StatusText(status), status)
	default:
		d.next.ServeHTTP(w, r)
	}
}

// ask gives the status for whoever has this token.
func (d *doorkeeper) ask(ctx context.Context, token, path string) (status int, err error) {
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
		return 0, fmt.Errorf("the API server does not say who may read: %w", err)
	}
	a = answer{http.StatusForbidden, d.now().Add(refusedFor)}
	switch {
	case user == "":
		a.status = http.StatusUnauthorized
	case allowed:
		a = answer{http.StatusOK, d.now().Add(allowedFor)}
	}
	d.remember(key, a)
	return a.status, nil
}

func (d *doorkeeper) remember(key [sha256.Size]byte, a answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= answersKept {
		clear(d.known) // those who may read are asked about again
	}
	d.known[key] = a
}

// isBeyondNode tells whether others than the node itself can reach an address that is listened at.
func isBeyondNode(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// encrypted has a listener speak TLS, with a certificate that it signs itself: tokens do not go in the clear, and nothing has to be handed
// out to nodes for it. It is made anew with each start.
func encrypted(l net.Listener, node string) (net.Listener, error) {
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
