package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/round"
	pods "github.com/beeline-cni/beeline/lab/suite/network"
	"github.com/beeline-cni/beeline/lab/suite/nodeport"
	"github.com/beeline-cni/beeline/lab/suite/policy"
	"github.com/beeline-cni/beeline/lab/suite/services"
)

// The suites of a bench in labs.
const (
	suiteNetwork  = "network"
	suiteServices = "services"
	suiteNodePort = "nodeport"
	suitePolicy   = "policy"
)

// Flags that only some suites have: network, services, and the two suites with both IP families.
var (
	networkFlags  = []string{"mtu", "pods", "kubeconfig", "paths", "procs"}
	servicesFlags = []string{"levels"}
	familyFlags   = []string{"ipv6"}
)

// checkSuite rejects an unknown suite, and flags that the suite does not have.
func (f *benchFlags) checkSuite(flags *pflag.FlagSet) error {
	kind, ok := suites[f.suite]
	if !ok {
		return fmt.Errorf("no suite %q; there are: %s, %s, %s, %s", f.suite, suiteNetwork, suiteServices, suiteNodePort, suitePolicy)
	}
	for _, name := range kind.without {
		if flags.Changed(name) {
			return fmt.Errorf("--%s has no meaning with --suite=%s", name, f.suite)
		}
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
	suiteNetwork: {
		network.All, func(o round.Options) (round.Suite, error) { return suiteOrError(pods.New(o)) }, servicesFlags,
	},
	suiteServices: {
		network.WithServices, func(o round.Options) (round.Suite, error) { return suiteOrError(services.New(o)) }, slices.Concat(networkFlags, familyFlags),
	},
	suiteNodePort: {
		network.WithNodePorts, func(o round.Options) (round.Suite, error) { return suiteOrError(nodeport.New(o)) }, slices.Concat(networkFlags, servicesFlags),
	},
	suitePolicy: {
		network.WithPolicies, func(o round.Options) (round.Suite, error) { return suiteOrError(policy.New(o)) }, slices.Concat(networkFlags, servicesFlags, familyFlags),
	},
}

// suiteOrError returns a nil interface, not an interface with a nil pointer, for an error.
func suiteOrError[S round.Suite](s S, err error) (round.Suite, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// newSuite returns the suite that the flags select.
func (f *benchFlags) newSuite() (round.Suite, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	return suites[f.suite].new(o)
}

// newConnectCommand returns the command that bench runs in pods.
func newConnectCommand(e cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:    convergence.Command,
		Short:  "Make connections for the bench",
		Hidden: true,
		Args:   cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := convergence.Answer(cmd.InOrStdin(), e.Stdout)
			if errors.Is(err, os.ErrClosed) {
				return nil
			}
			return err
		},
	}
}
