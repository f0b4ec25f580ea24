package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// answerTime is the reply timeout. It does not measure the network: processes wait for a CPU on a busy machine. Loss
// is found regardless: UDP is not retransmitted.
const answerTime = 20 * time.Second

// clock is the time format, that of the agents' logs.
const clock = "15:04:05.000"

// trafficControl is where a pod's traffic reports, on an address that only the pod has.
const trafficControl = "127.0.0.1:7002"

// load is one kind of traffic to one server. Its results are safe for concurrent use.
type load struct {
	address string

	mu sync.Mutex
	// Name is the kind and the address.
	Name string `json:"name"`
	// Done counts kilobytes, requests or connections that succeeded.
	Done int64 `json:"done"`
	// Slowest is the longest duration of one of them.
	Slowest time.Duration `json:"slowestNanoseconds"`
	// Errors are the first few errors.
	Errors []string `json:"errors,omitempty"`
}

// kinds are all kinds of traffic. run loads the address until the context ends, then waits for outstanding replies.
var kinds = []struct {
	name string
	run  func(l *load, ctx context.Context) error
}{
	{"stream to %s, KB", (*load).stream},
	{"connections to %s", (*load).connections},
	{"tcp requests to %s", func(l *load, ctx context.Context) error { return l.requests(ctx, "tcp") }},
	{"udp requests to %s", func(l *load, ctx context.Context) error { return l.requests(ctx, "udp") }},
}

// done counts one success and its duration.
func (l *load) done(amount int64, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Done += amount
	l.Slowest = max(l.Slowest, took)
}

// fail records an error with its time.
func (l *load) fail(err error) {
	const enough = 10
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && len(l.Errors) < enough {
		l.Errors = append(l.Errors, fmt.Sprintf("%s: %v", time.Now().Format(clock), err))
	}
}

// runTraffic loads echo servers, each with a stream, a thousand requests a second over TCP and as many over UDP, and
// a hundred connections a second. Errors do not end it.
func runTraffic(ctx context.Context, addresses []string) error {
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var loads []*load
	var running sync.WaitGroup
	for _, address := range addresses {
		for _, kind := range kinds {
			l := &load{address: address, Name: fmt.Sprintf(kind.name, address)}
			loads = append(loads, l)
			running.Go(func() { l.fail(kind.run(l, loading)) })
		}
	}
	report := func(w http.ResponseWriter) {
		for _, l := range loads {
			l.mu.Lock()
			defer l.mu.Unlock()
		}
		_ = json.NewEncoder(w).Encode(loads)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/now", func(w http.ResponseWriter, _ *http.Request) { report(w) })
	mux.HandleFunc("/end", func(w http.ResponseWriter, _ *http.Request) {
		stop()
		running.Wait()
		report(w)
	})
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(trafficControl, mux) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done(): // not after the report: its reader runs in this pod and ends with it
		return nil
	}
}

// printReport prints the report of this pod's traffic as JSON.
func printReport(_ context.Context, args []string) error {
	response, err := http.Get("http://" + trafficControl + "/" + args[0])
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

// dialFirst opens the connection of a load. The first one may be refused until all nodes have the server; later ones
// may not.
func dialFirst(ctx context.Context, address string) (conn net.Conn, err error) {
	const tries, gap = 20, 250 * time.Millisecond
	for range tries {
		if conn, err = net.DialTimeout("tcp", address, connectTime); err == nil || ctx.Err() != nil {
			return conn, err
		}
		time.Sleep(gap)
	}
	return nil, fmt.Errorf("no connection at all: %w", err)
}
