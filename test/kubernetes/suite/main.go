// Command suite is what `make test-kubernetes` runs: it brings clusters up with Beeline, tests them, and takes them down,
// also when something fails; then it keeps the logs and says where. It prints what happens as `go test -json` does;
// build/gotestsum.sh sums it up.
//
//	build/gotestsum.sh suite 'go run ./test/kubernetes/suite [-family ipv4|ipv6|dual] [-rounds flat,routed,kube-proxy,nftables] [-logs DIR]'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/beeline-cni/beeline/test/kubernetes/bed"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "suite: %v\n", err)
		os.Exit(1)
	}
}

// round is one cluster and what runs on it, in this order.
type round struct {
	name    string
	options plan.Options
	tests   []command
	// asked says that it runs only where it is named.
	asked bool
}

// conformance runs a selection of upstream's tests and keeps what upstream says of them below logs.
func conformance(logs, tests string) command {
	return command{"go", "run", "./test/kubernetes/conformance", "-tests=" + tests, "-out=" + logs + "/" + tests}
}

// everything is the round that runs all tests.
const everything = plan.TopologyFlat

// The clusters of a run: everything on the flat one, what a topology can change on the routed one, and beside kube-proxy what
// that has a part in. kube-proxy in mode nftables is for those who ask for it.
func rounds(logs string) []round {
	smoke := func(run string) command {
		return command{"go", "test", "-json", "-count=1", "-timeout=90m", "-tags=kubernetes", "-run=" + run, "./test/kubernetes/smoke"}
	}
	besideProxy := smoke("^TestNetwork$/^(NodesAreReady|ClusterDNS|ClusterIP|PodsAndServicesAtOnce|NodePort|NodePortLocal|HostPort|WorldSeesNodes|APIServerFromPods)$")
	return []round{
		{name: everything, options: plan.Options{Network: plan.NetworkBeeline, Topology: plan.TopologyFlat}, tests: []command{
			smoke("."),
			conformance(logs, "conformance"),
			conformance(logs, "netpol"),
		}},
		{name: plan.TopologyRouted, options: plan.Options{Network: plan.NetworkBeeline, Topology: plan.TopologyRouted}, tests: []command{
			// The world is not on the nodes' link there, and so cannot have routes through them.
			append(smoke("^TestNetwork$"), "-skip=^TestNetwork$/^(LoadBalancer|ExternalIP)$"),
		}},
		{name: "kube-proxy", options: plan.Options{Network: plan.NetworkBeeline, Proxy: plan.ProxyIPTables}, tests: []command{besideProxy}},
		{name: plan.ProxyNFTables, options: plan.Options{Network: plan.NetworkBeeline, Proxy: plan.ProxyNFTables}, tests: []command{besideProxy}, asked: true},
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("suite", flag.ContinueOnError)
	logs := flags.String("logs", "bin/kubernetes-logs", "`directory` for the logs of this run; what it holds is removed")
	only := flags.String("rounds", "", "names of the `rounds` to run, with commas; empty is all but nftables")
	family := flags.String("family", "", "addresses of the clusters: "+strings.Join(plan.Families, ", ")+"; empty is the first")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(rounds(*logs), *only)
	if err != nil {
		return err
	}
	if *family != "" {
		if chosen, err = withFamily(chosen, *family, *logs); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(*logs); err != nil {
		return err
	}
	if err := os.MkdirAll(*logs, 0o755); err != nil {
		return err
	}
	options := plan.Options{}.Defaults()
	parts, err := bed.Build(ctx, options.Kubernetes, progress)
	if err != nil {
		return fmt.Errorf("build Kubernetes: %w", err)
	}
	var errs []error
	for _, r := range chosen {
		if err := r.run(ctx, parts, *logs); err != nil {
			errs = append(errs, fmt.Errorf("%s cluster: %w", r.name, err))
		}
	}
	return errors.Join(errs...)
}

// choose picks the rounds of these names, or where there are none, all that need not be asked for.
func choose(all []round, names string) (chosen []round, err error) {
	if names == "" {
		return slices.DeleteFunc(all, func(r round) bool { return r.asked }), nil
	}
	for name := range strings.SplitSeq(names, ",") {
		at := slices.IndexFunc(all, func(r round) bool { return r.name == name })
		if at < 0 {
			return nil, fmt.Errorf("-rounds: there is no round %q", name)
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

// withFamily gives the clusters of the rounds addresses of this family, and the rounds a name that says so. A cluster with both
// families on which everything is tested also gets upstream's tests of that.
func withFamily(all []round, family, logs string) (chosen []round, err error) {
	for _, r := range all {
		r.options.Family = family
		if err := r.options.Defaults().Validate(); err != nil {
			return nil, fmt.Errorf("-family: %w", err)
		}
		if family == plan.FamilyDual && r.name == everything {
			r.tests = append(r.tests, conformance(logs, "dualstack"))
		}
		r.name += "-" + family
		chosen = append(chosen, r)
	}
	return chosen, nil
}

// progress tells a person on stderr how it goes on: stdout has the events.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
