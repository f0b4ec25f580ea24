package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite/cluster"
)

// onCluster are the flags of a bench on a live cluster.
type onCluster struct {
	kubeconfig, context string
	clean               bool
	options             cluster.Options
}

func (f *onCluster) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "measure the cluster of this kubeconfig file")
	flags.StringVar(&f.context, "context", "", "with --kubeconfig: context in the file (default: the current one)")
	flags.StringVar(&f.options.Namespace, "namespace", "", "with --kubeconfig: namespace for the pods (default: a new one, deleted afterwards)")
	flags.StringVar(&f.options.Client, "client-node", "", "with --kubeconfig: node of the clients (default: any)")
	flags.StringVar(&f.options.Server, "server-node", "", "with --kubeconfig: node of the servers (default: any other)")
	flags.StringVar(&f.options.Image, "image", cluster.DefaultImage, "with --kubeconfig: image of the pods")
	flags.StringVar(&f.options.PullSecret, "image-pull-secret", "", "with --kubeconfig: Secret in --namespace to pull the image with")
	flags.IntVar(&f.options.HostPorts, "host-ports", cluster.DefaultHostPorts, "with --kubeconfig: first of the host ports that servers use")
	flags.BoolVar(&f.clean, "clean", false, "with --kubeconfig: delete what earlier runs left in the cluster, then exit")
}

// runOnCluster measures a live cluster.
func (f *benchFlags) runOnCluster(ctx context.Context, e cli.Env, o round.Options) error {
	s, err := cluster.New(o, f.cluster.options)
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		return failed(e, exitUsage, err)
	}
	if s.API, err = cluster.Connect(f.cluster.kubeconfig, f.cluster.context, version); err != nil {
		return failed(e, exitMeasure, err)
	}
	left, err := cluster.Leftovers(ctx, s.API, s.Namespace)
	if f.cluster.clean {
		if err == nil {
			err = cleanCluster(ctx, e, s, left)
		}
		return failed(e, exitMeasure, err)
	}
	if err != nil {
		fmt.Fprintf(e.Stderr, "beeline-lab bench: list what earlier runs left: %v\n", err)
	}
	for _, l := range left {
		fmt.Fprintf(e.Stderr, "Another run is active or left something: %s. `beeline-lab bench --clean` with the same --kubeconfig, --context and --namespace deletes it.\n", l)
	}
	return f.run(ctx, e, s, "everything it created is deleted")
}

// cleanCluster deletes what earlier runs left, and names it.
func cleanCluster(ctx context.Context, e cli.Env, s *cluster.Suite, left []cluster.Leftover) error {
	if len(left) == 0 {
		fmt.Fprintln(e.Stderr, "Nothing to delete: no run left anything.")
		return nil
	}
	for _, l := range left {
		fmt.Fprintf(e.Stderr, "Deleting %s.\n", l)
	}
	return cluster.Remove(ctx, s.API, s.Namespace)
}
