package apiserver

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// dialTime bounds the wait for one of several API servers before the next one is tried.
const dialTime = 5 * time.Second

// Servers parses a comma-separated list of URLs of one cluster's API servers. Each must be https, because requests
// carry a token.
func Servers(list string) (all []*url.URL, err error) {
	for text := range strings.SplitSeq(list, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		switch {
		case err != nil:
			return nil, err
		case u.Scheme == "http":
			return nil, fmt.Errorf("%q: must be https: the service account's token would be sent unencrypted", text)
		case u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
			return nil, fmt.Errorf("%q is not a URL such as https://192.0.2.1:6443", text)
		case strings.Trim(u.Path, "/") != "" && strings.Contains(list, ","):
			return nil, fmt.Errorf("%q: a URL in a list must not have a path", text)
		}
		all = append(all, u)
	}
	return all, nil
}

// checkKubeconfig rejects a kubeconfig with an unencrypted server URL, unless the server is on this machine.
func checkKubeconfig(host string) error {
	u, _, err := rest.DefaultServerURL(host, "", schema.GroupVersion{}, false)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("server %q: must be https: credentials would be sent unencrypted", host)
}

// failover sends requests to one of several servers: the same one until it does not respond at all, then the next.
type failover struct {
	next    http.RoundTripper
	servers []*url.URL
	current atomic.Int64
}

// RoundTrip implements http.RoundTripper. A request that can be repeated is tried once on each server. Others fail,
// as do broken watches: the caller repeats them on the then current server.
func (f *failover) RoundTrip(r *http.Request) (*http.Response, error) {
	var first error
	for range f.servers {
		at := f.current.Load()
		server := f.servers[int(at)%len(f.servers)]
		try := r.Clone(r.Context())
		try.URL.Scheme, try.URL.Host, try.Host = server.Scheme, server.Host, ""
		if r.GetBody != nil && first != nil {
			body, err := r.GetBody()
			if err != nil {
				return nil, fmt.Errorf("send request again: %w", err)
			}
			try.Body = body
		}
		response, err := f.next.RoundTrip(try)
		if err == nil {
			return response, nil
		}
		if r.Context().Err() != nil {
			return nil, err // the caller's context ended
		}
		f.current.CompareAndSwap(at, at+1)
		if first == nil {
			first = err
		}
		if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
			break
		}
	}
	return nil, first
}
