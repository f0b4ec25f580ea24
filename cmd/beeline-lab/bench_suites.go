package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/measure"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/nodeport"
	"github.com/beeline-cni/beeline/lab/result"
)

// The suites of a bench in labs.
const (
	suiteNetwork  = "network"
	suiteServices = "services"
	suiteNodePort = "nodeport"
	suitePolicy   = "policy"
)

// ofNetwork are the flags that mean something in the network's suite only, ofServices those in the one of Services, and
// ofFamilies those in the two that have both families.
var (
	ofNetwork  = []string{"mtu", "pods", "kubeconfig", "paths", "procs"}
	ofServices = []string{"levels"}
	ofFamilies = []string{"ipv6"}
)

// checkSuite refuses a suite that there is not, and flags that mean nothing in it.
func (f *benchFlags) checkSuite(flags *pflag.FlagSet) error {
	wrong := ofServices
	switch f.suite {
	case suiteNetwork:
	case suiteServices:
		wrong = slices.Concat(ofNetwork, ofFamilies)
	case suiteNodePort:
		wrong = slices.Concat(ofNetwork, ofServices)
	case suitePolicy:
		wrong = slices.Concat(ofNetwork, ofServices, ofFamilies)
	default:
		return fmt.Errorf("no suite %q; there are: %s", f.suite, strings.Join([]string{suiteNetwork, suiteServices, suiteNodePort, suitePolicy}, ", "))
	}
	for _, name := range wrong {
		if flags.Changed(name) {
			return fmt.Errorf("--%s means nothing with --suite=%s", name, f.suite)
		}
	}
	return nil
}

// suitePlan is what one suite decides before a run.
type suitePlan struct {
	schedule  *measure.Schedule
	networks  int
	takes     time.Duration
	baseline  bool
	kubeProxy bool // takes part
	validate  func() error
	run       func(context.Context, *measure.Progress) (*result.Run, error)
}

// servicesPlan makes the plan of the Service bench that the flags ask for.
func (f *benchFlags) servicesPlan() (s suitePlan, err error) {
	choice, err := f.choice()
	if err != nil {
		return s, err
	}
	choice.Levels = f.levels
	preset := measure.QuickServices
	if f.full {
		preset = measure.FullServices
	}
	plan, err := preset(choice)
	if err != nil {
		return s, err
	}
	f.record(&plan.Schedule)
	plan.Gate.Steal, plan.Gate.Foreign = f.steal/100, f.foreign/100
	s = suitePlan{
		schedule: &plan.Schedule, networks: len(plan.Proxies), takes: plan.Estimate(), baseline: plan.Baseline, validate: plan.Validate,
		run: func(ctx context.Context, progress *measure.Progress) (*result.Run, error) {
			return measure.RunServices(ctx, plan, progress)
		},
	}
	if plan.Baseline {
		s.networks++
	}
	for _, proxy := range plan.Proxies {
		s.kubeProxy = s.kubeProxy || isKubeProxy(proxy)
	}
	return s, nil
}

// policyPlan makes the plan of the policy bench that the flags ask for.
func (f *benchFlags) policyPlan() (s suitePlan, err error) {
	choice, err := f.choice()
	if err != nil {
		return s, err
	}
	preset := measure.QuickPolicy
	if f.full {
		preset = measure.FullPolicy
	}
	plan, err := preset(choice)
	if err != nil {
		return s, err
	}
	f.record(&plan.Schedule)
	plan.Gate.Steal, plan.Gate.Foreign = f.steal/100, f.foreign/100
	return suitePlan{
		schedule: &plan.Schedule, networks: len(plan.Networks), takes: plan.Estimate(), baseline: plan.HasBaseline(), validate: plan.Validate,
		run: func(ctx context.Context, progress *measure.Progress) (*result.Run, error) {
			return measure.RunPolicy(ctx, plan, progress)
		},
	}, nil
}

// nodePortPlan makes the plan of the NodePort bench that the flags ask for.
func (f *benchFlags) nodePortPlan() (s suitePlan, err error) {
	choice, err := f.choice()
	if err != nil {
		return s, err
	}
	plan, err := nodeport.NewPlan(nodeport.Choice{
		Networks: choice.Networks, Builds: choice.Builds, Figures: choice.Workloads, Placements: choice.Placements, Rounds: choice.Rounds, Length: choice.Length,
		Full: f.full, IPv6: f.ipv6,
	})
	if err != nil {
		return s, err
	}
	f.record(&plan.Schedule)
	plan.Gate.Steal, plan.Gate.Foreign = f.steal/100, f.foreign/100
	s = suitePlan{
		schedule: &plan.Schedule, networks: len(plan.Networks), takes: plan.Estimate(), baseline: plan.HasBaseline(), validate: plan.Schedule.Validate,
		run: func(ctx context.Context, progress *measure.Progress) (*result.Run, error) {
			return nodeport.Run(ctx, plan, progress)
		},
	}
	for _, c := range plan.Networks {
		s.kubeProxy = s.kubeProxy || isKubeProxy(c)
	}
	return s, nil
}

// isKubeProxy says whether the network needs the program kube-proxy.
func isKubeProxy(c network.Network) bool {
	_, ok := c.(network.KubeProxy)
	return ok && c.Unsupported() == ""
}

// runSuite makes a run of one of the suites beside the network's.
func runSuite(ctx context.Context, e cli.Env, f *benchFlags) error {
	make := f.servicesPlan
	switch f.suite {
	case suiteNodePort:
		make = f.nodePortPlan
	case suitePolicy:
		make = f.policyPlan
	}
	plan, err := make()
	if err == nil {
		err = plan.validate()
	}
	if err != nil {
		return usageError(e, err)
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(e.Stderr, "beeline-lab bench: needs root: it makes network namespaces")
		return exitMeasure
	}
	if plan.kubeProxy {
		say := func(format string, args ...any) { fmt.Fprintf(e.Stderr, format+"\n", args...) }
		if err := network.BuildKubeProxy(ctx, say); err != nil {
			fmt.Fprintf(e.Stderr, "beeline-lab bench: build kube-proxy, which needs Go and a module proxy: %v\n", err)
			return exitMeasure
		}
	}
	announce(e, *plan.schedule, plan.networks, plan.takes, plan.baseline)
	progress := measure.NewProgress(e.Stderr, isTerminal(e.Stderr), plan.takes)
	run, err := plan.run(ctx, progress)
	return finishBench(e, f.directory(), run, "every lab is taken down", err)
}

// listSuite names the networks of a suite.
func listSuite(suite string, text *strings.Builder) {
	var list []network.Network
	switch suite {
	case suiteNodePort:
		list = nodeport.Networks()
	case suitePolicy:
		list = network.PolicyNetworks()
	default:
		list = append(list, network.Node{})
		for _, proxy := range network.Proxies() {
			list = append(list, proxy)
		}
	}
	listNetworks(list, text)
}

// newConnectCommand is for the bench itself, which runs it in pods.
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
