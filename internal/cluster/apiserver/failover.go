package apiserver

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// dialTime bounds how long one of several API servers is waited for before the next one is asked.
const dialTime = 5 * time.Second

// Servers reads the URLs of API servers, with commas between them. They are of one cluster, and asked with a token: in the clear it would be
// everybody's, so each is https.
func Servers(list string) (all []*url.URL, err error) {
	for text := range strings.SplitSeq(list, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		switch {
		case err != nil:
			return nil, err
		case u.Scheme == "http":
			return nil, fmt.Errorf("%q: the service account's token and all that is read would go in the clear; it has to be https", text)
		case u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
			return nil, fmt.Errorf("%q is not a URL, as https://192.0.2.1:6443 is", text)
		case strings.Trim(u.Path, "/") != "" && strings.Contains(list, ","):
			return nil, fmt.Errorf("%q: of several URLs none can have a path", text)
		}
		all = append(all, u)
	}
	return all, nil
}

// checkKubeconfig refuses a kubeconfig whose server is asked in the clear, unless that is on this machine.
func checkKubeconfig(host string) error {
	if !strings.Contains(host, "://") {
		host = "http://" + host // which is what the library makes of it
	}
	u, err := url.Parse(host)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("server %q: credentials and all that is read would go in the clear; it has to be https", host)
}

// failover asks one of several servers: the same one until it gives no answer at all, then the next.
type failover struct {
	next    http.RoundTripper
	servers []*url.URL
	current atomic.Int64
}

// RoundTrip implements http.RoundTripper. A request that can be sent again is, once to each server; others fail, and so do watches that break:
// who repeats them gets the server that is asked by then.
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
			return nil, err // the caller's end, and not the server's
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
