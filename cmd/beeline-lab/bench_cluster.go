package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/live"
	"github.com/beeline-cni/beeline/lab/measure"
)

// clusterFlags are the flags of a bench on a live cluster.
type clusterFlags struct {
	kubeconfig, context string
	clean               bool
	options             live.Options
}

// ofClusters are the flags that mean something with --kubeconfig only; ofLabs only without.
var (
	ofClusters = []string{"context", "clean", "namespace", "client-node", "server-node", "image", "image-pull-secret", "host-ports"}
	ofLabs     = []string{"mtu", "pods"}
)

func (f *clusterFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "measure the cluster of this kubeconfig file")
	flags.StringVar(&f.context, "context", "", "with --kubeconfig: context in the file (default its current one)")
	flags.StringVar(&f.options.Namespace, "namespace", "", "with --kubeconfig: use this namespace (default: one of its own, deleted afterwards)")
	flags.StringVar(&f.options.Client, "client-node", "", "with --kubeconfig: node of the clients (default: chosen)")
	flags.StringVar(&f.options.Server, "server-node", "", "with --kubeconfig: node of the servers (default: another one)")
	flags.StringVar(&f.options.Image, "image", live.DefaultImage, "with --kubeconfig: image of the pods")
	flags.StringVar(&f.options.PullSecret, "image-pull-secret", "", "with --kubeconfig and --namespace: secret there that the nodes need to pull the image")
	flags.IntVar(&f.options.HostPorts, "host-ports", live.DefaultHostPorts, "with --kubeconfig: first of the ports that servers use on the nodes")
	flags.BoolVar(&f.clean, "clean", false, "with --kubeconfig: delete what runs have left in the cluster, and end")
}

// check refuses flags that mean nothing together.
func (f *clusterFlags) check(flags *pflag.FlagSet) error {
	wrong, with := ofClusters, "without"
	if f.kubeconfig != "" {
		wrong, with = ofLabs, "with"
	}
	for _, name := range wrong {
		if flags.Changed(name) {
			return fmt.Errorf("--%s means nothing %s --kubeconfig", name, with)
		}
	}
	if f.options.PullSecret != "" && f.options.Namespace == "" {
		return errors.New("--image-pull-secret needs --namespace: the secret has to be there")
	}
	return nil
}

// clusterPlan makes the plan that the flags ask for.
func (f *benchFlags) clusterPlan(flags *pflag.FlagSet) (live.Plan, error) {
	choice, err := f.choice()
	if err != nil {
		return live.Plan{}, err
	}
	preset := live.Quick
	if f.full {
		preset = live.Full
	}
	plan, err := preset(choice)
	if err != nil {
		return plan, err
	}
	f.record(&plan.Schedule)
	plan.Options = f.cluster.options
	if flags.Changed("max-steal") {
		plan.Gate.Steal = f.steal / 100
	}
	if flags.Changed("max-foreign") {
		plan.Gate.Foreign = f.foreign / 100
	}
	return plan, plan.Validate()
}

func runClusterBench(ctx context.Context, e cli.Env, f *benchFlags, flags *pflag.FlagSet) error {
	plan, err := f.clusterPlan(flags)
	if err != nil {
		return usageError(e, err)
	}
	fail := func(err error) error {
		fmt.Fprintf(e.Stderr, "beeline-lab bench: %v\n", err)
		return exitMeasure
	}
	api, err := live.Connect(f.cluster.kubeconfig, f.cluster.context, version)
	if err != nil {
		return fail(err)
	}
	left, err := live.Leftovers(ctx, api, plan.Namespace)
	if f.cluster.clean {
		if err == nil {
			err = cleanCluster(ctx, e, api, left)
		}
		if err != nil {
			return fail(err)
		}
		return nil
	}
	if err != nil {
		fmt.Fprintf(e.Stderr, "Looking for what other runs have left: %v\n", err)
	}
	for _, l := range left {
		fmt.Fprintf(e.Stderr, "Another run is under way, or has left something: %s. `beeline-lab bench --clean` with the same --kubeconfig, --context and --namespace removes it.\n", l)
	}
	announce(e, plan.Schedule, len(plan.Networks), plan.Estimate(), plan.HasBaseline())
	progress := measure.NewProgress(e.Stderr, isTerminal(e.Stderr), plan.Estimate())
	run, err := live.Run(ctx, api, plan, progress)
	return finishBench(e, f.directory(), run, "everything it created is deleted", err)
}

// cleanCluster deletes what runs have left and says what it was.
func cleanCluster(ctx context.Context, e cli.Env, api live.API, left []live.Leftover) error {
	if len(left) == 0 {
		fmt.Fprintln(e.Stderr, "Nothing is left of any run.")
		return nil
	}
	for _, l := range left {
		fmt.Fprintf(e.Stderr, "Deleting %s.\n", l)
	}
	return live.Remove(ctx, api, left)
}
