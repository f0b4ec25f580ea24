package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite/encryption"
	pods "github.com/beeline-cni/beeline/lab/suite/network"
	"github.com/beeline-cni/beeline/lab/suite/nodeport"
	"github.com/beeline-cni/beeline/lab/suite/policy"
	"github.com/beeline-cni/beeline/lab/suite/services"
)

// The suites of a bench in labs.
const (
	suiteNetwork    = "network"
	suiteServices   = "services"
	suiteNodePort   = "nodeport"
	suitePolicy     = "policy"
	suiteEncryption = "encryption"
)

// Flags that only some suites have: network, network in labs, services, those with both IP families, and network on a
// cluster.
var (
	networkFlags  = []string{"paths", "procs", "kubeconfig"}
	labFlags      = []string{"mtu", "pods"}
	servicesFlags = []string{"levels"}
	familyFlags   = []string{"ipv6"}
	clusterFlags  = []string{"context", "clean", "namespace", "client-node", "server-node", "image", "image-pull-secret", "host-ports"}
)

// check rejects an unknown suite, and flags that do not go together.
func (f *benchFlags) check() error {
	kind, ok := suites[f.suite]
	if !ok {
		return fmt.Errorf("no suite %q; there are: %s, %s, %s, %s, %s", f.suite, suiteNetwork, suiteServices, suiteNodePort, suitePolicy, suiteEncryption)
	}
	without, where := slices.Concat(kind.without, clusterFlags), "in labs"
	if f.cluster.kubeconfig != "" {
		without, where = slices.Concat(kind.without, labFlags), "on a cluster"
	}
	for _, name := range without {
		if f.changed(name) {
			return fmt.Errorf("--%s has no meaning with --suite=%s %s", name, f.suite, where)
		}
	}
	if f.cluster.options.PullSecret != "" && f.cluster.options.Namespace == "" {
		return errors.New("--image-pull-secret needs --namespace, the namespace of the Secret")
	}
	return nil
}

// suiteKind is a suite that runs in labs.
type suiteKind struct {
	networks func() []network.Network
	new      func(round.Options) (round.Suite, error)
	// without are the flags that it does not have.
	without []string
}

// suites are the suites that run in labs, by name.
var suites = map[string]suiteKind{
	suiteNetwork:    {network.All, suiteOrError(pods.New), servicesFlags},
	suiteServices:   {network.WithServices, suiteOrError(services.New), slices.Concat(networkFlags, labFlags, familyFlags)},
	suiteNodePort:   {network.WithNodePorts, suiteOrError(nodeport.New), slices.Concat(networkFlags, labFlags, servicesFlags)},
	suitePolicy:     {network.WithPolicies, suiteOrError(policy.New), slices.Concat(networkFlags, labFlags, servicesFlags, familyFlags)},
	suiteEncryption: {network.WithEncryption, suiteOrError(encryption.New), slices.Concat(networkFlags, labFlags, servicesFlags, familyFlags)},
}

// suiteOrError returns a nil interface, not an interface with a nil pointer, for an error.
func suiteOrError[S round.Suite](create func(round.Options) (S, error)) func(round.Options) (round.Suite, error) {
	return func(o round.Options) (round.Suite, error) {
		s, err := create(o)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
}

// newConnectCommand returns the command that bench runs in pods.
func newConnectCommand(e cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:    convergence.Command,
		Short:  "Make connections for the bench",
		Hidden: true,
		Args:   cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := convergence.Answer(cmd.InOrStdin(), e.Stdout)
			if errors.Is(err, os.ErrClosed) {
				return nil
			}
			return err
		},
	}
}
