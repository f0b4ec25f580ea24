// Command probe is the program in the pods of the smoke tests: servers, and clients that check the replies. The tests
// start the clients with `kubectl exec`, on a node, or outside the cluster. A client prints its results to standard
// output; its exit code is the verdict.
//
//	probe serve                             reply until stopped
//	probe echo tcp|udp HOST:PORT [flags]    send bytes, expect the same ones back
//	probe ping ADDRESS [flags]              ICMP echo
//	probe ask HOST:PORT… [flags]            print the server and the client address it sees
//	probe api                               get the version of the API server
//	probe resolve NAME [flags]              query a DNS server
//	probe ready true|false                  set this pod's reply to readiness probes
//	probe traffic HOST:PORT…                load all of these until stopped
//	probe report                            end the traffic of this pod and print its results
//	probe node COMMAND…                     run a command in the file system of the pod's node
//	probe wait                              do nothing until stopped
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// commands are the commands by name.
var commands = map[string]func(ctx context.Context, args []string) error{
	"serve":   serve,
	"echo":    echo,
	"ping":    ping,
	"api":     api,
	"ask":     ask,
	"resolve": resolve,
	"ready":   setReady,
	"traffic": runTraffic,
	"report":  printReport,
	"node":    runOnNode,
	"wait":    wait,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "probe: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("no such command in %q; see the package comment", args)
	}
	return commands[args[0]](ctx, args[1:])
}
