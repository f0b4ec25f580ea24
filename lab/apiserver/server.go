// Package apiserver is an API server as far as proxies and agents need one: lists and watches of objects that the lab
// puts into memory, over plain HTTP, as JSON or protobuf. Agents allocate addresses by IPClaims that they write, with
// the conflicts of a real server, and report the use of IPPools. What clients write else (events, the status of their
// nodes) is accepted and forgotten. There are no rights and no admission: it listens inside of labs only.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server holds objects and serves them. Its methods may be called from several goroutines.
type Server struct {
	http *http.Server

	mu          sync.Mutex
	version     int
	collections map[*kind]*collection
	changed     chan struct{} // closed when something has changed
}

// New makes a server without objects, which listens nowhere yet.
func New() *Server {
	s := &Server{version: 1, collections: map[*kind]*collection{}, changed: make(chan struct{})}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute}
	return s
}

// Serve answers at a listener, of which the server may have several, until Close.
func (s *Server) Serve(listener net.Listener) {
	go func() { _ = s.http.Serve(listener) }() // its end is Close, or that of the listener's network
}

// Close ends all connections and listeners.
func (s *Server) Close() error {
	if err := s.http.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close API server: %w", err)
	}
	return nil
}

// Kubeconfig is the file for clients of a server at a URL. Every client may do everything.
func Kubeconfig(url string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: %q}}]
users: [{name: anybody, user: {}}]
contexts: [{name: lab, context: {cluster: lab, user: anybody}}]
current-context: lab
`, url)
}
