package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/suite/cluster"
)

// clusterFlags are the flags of a bench on a live cluster.
type clusterFlags struct {
	kubeconfig, context string
	clean               bool
	options             cluster.Options
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
	flags.StringVar(&f.options.Image, "image", cluster.DefaultImage, "with --kubeconfig: image of the pods")
	flags.StringVar(&f.options.PullSecret, "image-pull-secret", "", "with --kubeconfig and --namespace: secret there that the nodes need to pull the image")
	flags.IntVar(&f.options.HostPorts, "host-ports", cluster.DefaultHostPorts, "with --kubeconfig: first of the ports that servers use on the nodes")
	flags.BoolVar(&f.clean, "clean", false, "with --kubeconfig: delete what runs have left in the cluster, and end")
}

// check rejects flags without a meaning together.
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

// runOnCluster makes a run on a live cluster.
func (f *benchFlags) runOnCluster(ctx context.Context, e cli.Env) error {
	o, err := f.options()
	if err != nil {
		return usageError(e, err)
	}
	s, err := cluster.New(o, f.cluster.options)
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		return usageError(e, err)
	}
	fail := func(err error) error {
		fmt.Fprintf(e.Stderr, "beeline-lab bench: %v\n", err)
		return exitMeasure
	}
	if s.API, err = cluster.Connect(f.cluster.kubeconfig, f.cluster.context, version); err != nil {
		return fail(err)
	}
	left, err := cluster.Leftovers(ctx, s.API, s.Namespace)
	if f.cluster.clean {
		if err == nil {
			err = cleanCluster(ctx, e, s.API, left)
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
	return f.run(ctx, e, s, "everything it created is deleted")
}

// cleanCluster deletes what runs have left and says what it was.
func cleanCluster(ctx context.Context, e cli.Env, api cluster.API, left []cluster.Leftover) error {
	if len(left) == 0 {
		fmt.Fprintln(e.Stderr, "Nothing is left of any run.")
		return nil
	}
	for _, l := range left {
		fmt.Fprintf(e.Stderr, "Deleting %s.\n", l)
	}
	return cluster.Remove(ctx, api, left)
}
