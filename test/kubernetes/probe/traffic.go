package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// trafficControl is where a pod's traffic reports, on an address that only the pod has.
const trafficControl = "127.0.0.1:7002"

// load is one kind of traffic to one server.
type load interface {
	// run runs until the context ends, then waits for outstanding replies.
	run(ctx context.Context)
	// report returns the results, also while the load runs.
	report() loadReport
}

// loadReport is the result of one load.
type loadReport struct {
	Name string `json:"name"`
	// Done counts kilobytes, requests or connections that succeeded.
	Done int64 `json:"done"`
	// Slowest is the longest duration of one of them.
	Slowest time.Duration `json:"slowestNanoseconds"`
	// Errors are the first few errors.
	Errors []string `json:"errors,omitempty"`
}

// runTraffic loads echo servers, each with a stream, a thousand requests a second over TCP and as many over UDP, and
// a hundred connections a second. Errors do not end it.
func runTraffic(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("traffic: an address is needed")
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var loads []load
	var running sync.WaitGroup
	for _, address := range args {
		for _, l := range []load{newStream(address), newConnections(address), newRequests("tcp", address), newRequests("udp", address)} {
			loads = append(loads, l)
			running.Go(func() { l.run(loading) })
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/now", func(w http.ResponseWriter, _ *http.Request) { writeReports(w, loads) })
	mux.HandleFunc("/end", func(w http.ResponseWriter, _ *http.Request) {
		stop()
		running.Wait()
		writeReports(w, loads)
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

func writeReports(w http.ResponseWriter, loads []load) {
	reports := make([]loadReport, len(loads))
	for i, l := range loads {
		reports[i] = l.report()
	}
	_ = json.NewEncoder(w).Encode(reports)
}

// printReport prints the report of this pod's traffic as JSON, and ends the traffic; with the argument "now" it
// continues.
func printReport(ctx context.Context, args []string) error {
	path := "/end"
	if len(args) > 0 && args[0] == "now" {
		path = "/now"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+trafficControl+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var reports []loadReport
	if err := json.NewDecoder(response.Body).Decode(&reports); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(reports)
}

// dialFirst opens the connection of a load. The first one may be refused until all nodes have the server; later ones
// may not.
func dialFirst(ctx context.Context, protocol, address string) (conn net.Conn, err error) {
	const tries, gap = 20, 250 * time.Millisecond
	for range tries {
		if conn, err = net.DialTimeout(protocol, address, connectTime); err == nil || ctx.Err() != nil {
			return conn, err
		}
		time.Sleep(gap)
	}
	return nil, fmt.Errorf("no connection at all: %w", err)
}
