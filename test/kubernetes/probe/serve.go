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
)

// answer describes the server and the client.
type answer struct {
	// Pod and Node are the environment's POD_NAME and NODE_NAME.
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// Client is the address of the client at the server, without the port.
	Client string `json:"client"`
}

// unready is the file that makes this pod unready.
const unready = "/unready"

// serve echoes on -echo, TCP and UDP, and replies on -http with its name.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	echoAddress := flags.String("echo", ":7000", "`address` of the echo servers")
	httpAddress := flags.String("http", ":8080", "`address` of the server that replies with its name")
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
	http.HandleFunc("/ready", replyReady)
	http.HandleFunc("/", replyName)
	ended := make(chan error, 1)
	go func() { ended <- http.ListenAndServe(*httpAddress, nil) }()
	go echoStreams(streams)
	go echoPackets(packets)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// replyReady replies to readiness probes.
func replyReady(w http.ResponseWriter, _ *http.Request) {
	if _, err := os.Stat(unready); err == nil {
		http.Error(w, unready+" exists", http.StatusServiceUnavailable)
	}
}

func replyName(w http.ResponseWriter, r *http.Request) {
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	w.Header().Set("Connection", "close")
	_ = json.NewEncoder(w).Encode(answer{Pod: os.Getenv("POD_NAME"), Node: os.Getenv("NODE_NAME"), Client: client})
}

// setReady sets this pod's reply to readiness probes.
func setReady(_ context.Context, args []string) error {
	if args[0] == "true" {
		return os.Remove(unready)
	}
	return os.WriteFile(unready, nil, 0o644)
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
