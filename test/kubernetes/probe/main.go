// Command probe is the program in the pods of the smoke tests: servers, and clients that check the replies. The tests
// start the clients with `kubectl exec`, on a node, or outside the cluster. A client prints its results to standard
// output; its exit code is the verdict. Flags follow the other arguments.
//
//	probe serve                             reply until stopped
//	probe echo tcp|udp HOST:PORT [flags]    send bytes, expect the same ones back
//	probe ping ADDRESS [flags]              ICMP echo
//	probe ask HOST:PORT… [flags]            print the server and the client address it sees
//	probe api                               get the version of the API server
//	probe resolve NAME [flags]              query a DNS server
//	probe ready true|false                  set this pod's reply to readiness probes
//	probe traffic HOST:PORT…                load all of these until stopped
//	probe report now|end                    print the results of this pod's traffic; with end, after it has ended
//	probe node COMMAND…                     run a command in the file system of the pod's node
//	probe wait                              do nothing until stopped
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/test/program"
)

// commands are the commands by name, with the number of arguments that each needs.
var commands = map[string]struct {
	needs int
	run   func(ctx context.Context, args []string) error
}{
	"serve":   {0, serve},
	"echo":    {2, echo},
	"ping":    {1, ping},
	"api":     {0, api},
	"ask":     {1, ask},
	"resolve": {1, resolve},
	"ready":   {1, setReady},
	"traffic": {1, runTraffic},
	"report":  {1, printReport},
	"node":    {1, runOnNode},
	"wait":    {0, wait},
}

func main() { program.Main("probe", run) }

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if c, known := commands[args[0]]; known && len(args) > c.needs {
			return c.run(ctx, args[1:])
		}
	}
	return fmt.Errorf("no such command, or an argument is missing in %q; see the package comment", args)
}

// parse parses the flags in args, and returns the arguments before them.
func parse(flags *flag.FlagSet, args []string) (before []string, err error) {
	first := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") })
	if first < 0 {
		return args, nil
	}
	return args[:first], flags.Parse(args[first:])
}
