package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

// answer describes the server and the client.
type answer struct {
	// Pod and Node are the environment's POD_NAME and NODE_NAME.
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// Client is the address of the client at the server, without the port.
	Client string `json:"client"`
}

// localControl is where a pod's server takes commands of `probe ready`: an address that only the pod has.
const localControl = "127.0.0.1:7001"

// serve echoes on -echo, TCP and UDP, and replies on -http with its name.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	echoAddress := flags.String("echo", ":7000", "`address` of the echo servers")
	httpAddress := flags.String("http", ":8080", "`address` of the server that tells who it is")
	control := flags.Bool("control", true, "take commands on "+localControl)
	if err := flags.Parse(args); err != nil {
		return err
	}
	streams, err := net.Listen("tcp", *echoAddress)
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp", *echoAddress)
	if err != nil {
		return err
	}
	var unready atomic.Bool
	servers := []*http.Server{{Addr: *httpAddress, Handler: whoHandler(&unready)}}
	if *control {
		servers = append(servers, &http.Server{Addr: localControl, Handler: controlHandler(&unready)})
	}
	ended := make(chan error, len(servers))
	for _, s := range servers {
		go func() { ended <- s.ListenAndServe() }()
	}
	go echoStreams(streams)
	go echoPackets(packets)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// whoHandler replies with the pod's name on every path but /ready, which is for readiness probes.
func whoHandler(unready *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if unready.Load() {
			http.Error(w, "told to be unready", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		client, _, _ := net.SplitHostPort(r.RemoteAddr)
		w.Header().Set("Connection", "close")
		_ = json.NewEncoder(w).Encode(answer{Pod: os.Getenv("POD_NAME"), Node: os.Getenv("NODE_NAME"), Client: client})
	})
	return mux
}

func controlHandler(unready *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { unready.Store(r.URL.Path == "/false") })
}

// setReady sets this pod's reply to readiness probes.
func setReady(_ context.Context, args []string) error {
	if len(args) != 1 || args[0] != "true" && args[0] != "false" {
		return errors.New("ready: true or false?")
	}
	resp, err := http.Get("http://" + localControl + "/" + args[0])
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func echoStreams(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			fmt.Fprintf(os.Stderr, "probe: accept: %v\n", err)
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn) // the client notices missing bytes
		}()
	}
}

func echoPackets(conn net.PacketConn) {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = conn.WriteTo(buffer[:n], from) // the client notices missing packets
		}
	}
}
