// Command suite is `make test-kubernetes`: it starts clusters with Beeline, tests them and removes them. After a
// failure it keeps their logs. With -kubeconfig it tests an existing cluster instead. It prints `go test -json` events;
// build/gotestsum.sh sums them up.
//
//	build/gotestsum.sh suite 'go run ./test/kubernetes/suite [-family ipv4|ipv6|dual] [-rounds flat,routed,kube-proxy,nftables] [-logs DIR]'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/kubebuild"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
	"github.com/beeline-cni/beeline/test/kubernetes/testcluster"
	"github.com/beeline-cni/beeline/test/program"
)

func main() { program.Main("suite", run) }

// round is one cluster and the tests that run on it, in this order.
type round struct {
	name    string
	options plan.Options
	tests   []command
	// optional rounds run only if -rounds names them.
	optional bool
}

// conformance runs a selection of Kubernetes' own tests and keeps their reports below logs.
func conformance(logs, tests string) command {
	return command{"go", "run", "./test/kubernetes/conformance", "-tests=" + tests, "-out=" + logs + "/" + tests}
}

// everything is the round that runs all tests.
const everything = plan.TopologyFlat

// smoke runs the smoke tests that match.
func smoke(run string) command {
	return command{"go", "test", "-json", "-count=1", "-timeout=90m", "-tags=kubernetes", "-run=" + run, "./test/kubernetes/smoke"}
}

// rounds are the clusters of a run: all tests on the flat one, tests that depend on the topology on the routed one, and
// tests that depend on kube-proxy with kube-proxy. The mode nftables is optional.
func rounds(logs string) []round {
	besideProxy := smoke("^TestNetwork$/^(NodesAreReady|ClusterDNS|ClusterIP|PodsAndServicesAtOnce|NodePort|NodePortLocal|HostPort|ExternalSeesNodes|APIServerFromPods)$")
	return []round{
		{name: everything, options: plan.Options{Network: plan.NetworkBeeline, Topology: plan.TopologyFlat}, tests: []command{
			smoke("."),
			conformance(logs, "conformance"),
			conformance(logs, "netpol"),
		}},
		{name: plan.TopologyRouted, options: plan.Options{Network: plan.NetworkBeeline, Topology: plan.TopologyRouted}, tests: []command{
			// The external machine is not on the nodes' link, so it cannot have routes through them.
			append(smoke("^TestNetwork$"), "-skip=^TestNetwork$/^(LoadBalancer|ExternalIP)$"),
		}},
		{name: "kube-proxy", options: plan.Options{Network: plan.NetworkBeeline, Proxy: plan.ProxyIPTables}, tests: []command{besideProxy}},
		{name: plan.PoolsMacvlan, options: plan.Options{Network: plan.NetworkBeeline, Pools: plan.PoolsMacvlan}, tests: []command{
			smoke("."),
			conformance(logs, "conformance"),
			conformance(logs, "netpol"),
		}, optional: true},
		{name: plan.PoolsMixed, options: plan.Options{Network: plan.NetworkBeeline, Pools: plan.PoolsMixed}, tests: []command{smoke(".")}, optional: true},
		{name: plan.ProxyNFTables, options: plan.Options{Network: plan.NetworkBeeline, Proxy: plan.ProxyNFTables}, tests: []command{besideProxy}, optional: true},
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("suite", flag.ContinueOnError)
	logs := flags.String("logs", "bin/kubernetes-logs", "`directory` for the logs of this run; its content is removed first")
	only := flags.String("rounds", "", "comma-separated names of the `rounds` to run (default: all except nftables)")
	family := flags.String("family", "", "addresses of the clusters: "+strings.Join(plan.Families, ", ")+" (default: the first)")
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig `file` of a cluster to test instead of starting clusters")
	image := flags.String("image", testcluster.DefaultImage, "`name` of the probe's image, for -kubeconfig (make image-probe)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubeconfig != "" {
		return testRemote(ctx, *kubeconfig, *image, *logs)
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
	parts, err := testbed.Build(ctx, options.Kubernetes, progress)
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

// testRemote runs all tests on an existing cluster. Tests that need the testbed skip themselves.
func testRemote(ctx context.Context, kubeconfig, image, logs string) error {
	cache, err := kubebuild.OpenCache()
	if err != nil {
		return err
	}
	if err := kubebuild.Build(ctx, cache, kubebuild.Version, []string{"kubectl", "e2e.test", "ginkgo"}, progress); err != nil {
		return fmt.Errorf("build Kubernetes' tests: %w", err)
	}
	for name, value := range map[string]string{testcluster.KubeconfigVariable: kubeconfig, testcluster.ImageVariable: image} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	var errs []error
	for _, test := range []command{smoke("."), conformance(logs, "conformance"), conformance(logs, "netpol")} {
		errs = append(errs, test.run(ctx, filepath.Base(kubeconfig)))
	}
	return errors.Join(errs...)
}

// choose picks the rounds by name, by default those that are not optional.
func choose(all []round, names string) (chosen []round, err error) {
	if names == "" {
		return slices.DeleteFunc(all, func(r round) bool { return r.optional }), nil
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

// withFamily sets the family of the rounds' clusters and appends it to the rounds' names. A dual-stack cluster with all
// tests also gets Kubernetes' own tests of dual stack.
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

// progress prints to stderr: stdout has the events.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
