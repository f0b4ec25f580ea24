package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/live"
	"github.com/beeline-cni/beeline/lab/measure"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/nodeport"
	"github.com/beeline-cni/beeline/lab/report"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/workload"
)

// The exit codes of bench beside 0.
const (
	exitUsage   cli.ExitCode = 2 // the command line makes no sense
	exitMeasure cli.ExitCode = 3 // the run gave no result, or not the whole of it
)

// benchFlags are the command line of bench.
type benchFlags struct {
	quick, full, list   bool
	suite               string
	levels              []int
	networks, workloads []string
	paths, placements   []string
	procs               []int
	rounds              int
	duration            time.Duration
	mtu                 int
	ipv6                bool
	seed                uint64
	out                 string
	steal, foreign      float64
	pods                int
	podsGiven           bool // 0 is a number of pods, too
	cluster             clusterFlags
}

func newBenchCommand(e cli.Env) *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Compare pod networking by Beeline with the node's own and with the alternatives, on this machine or on a cluster",
		Long: `Bench brings up every network on a lab of its own (two nodes made of network namespaces), runs all
workloads over all of them in rounds of random order, and compares within each round.

With --kubeconfig it measures a live cluster instead, whatever its network: it creates pods on two nodes, compares
the ways from one to the other (node, pod, service, nodeport) and deletes what it created, also when it is
interrupted. The nodes need the image that "make image-bench" makes; deploy/bench-rbac.yaml has the rights it needs.

The suites services and nodeport compare with the real kube-proxy, which is built first from its sources where that
has not been done before: it takes some minutes, the Go command, and a module proxy.

Results go to a directory: results.json (every sample), report.html, and benchmark.txt for benchstat.

Exit codes: 0 done, 2 bad usage, 3 could not measure.`,
		Example: `  beeline-lab bench                                   the quick one, at most five minutes
  beeline-lab bench --full --out results/full         everything, more than an hour
  beeline-lab bench --networks node,beeline --workloads tcp_rr --rounds 20
  beeline-lab bench --networks node,beeline,old=../before/bin --rounds 20   this build and another one in the same rounds
  beeline-lab bench --suite=services                  ClusterIPs with Beeline and with kube-proxy, about ten minutes
  beeline-lab bench --suite=nodeport --ipv6           packets from outside to NodePorts, over IPv6
  beeline-lab bench --suite=policy                    NetworkPolicies and flows: what they cost, and whether they are enforced
  beeline-lab bench --list                            networks and workloads
  beeline-lab bench --kubeconfig ~/.kube/config       the quick one on a cluster
  beeline-lab bench --kubeconfig ~/.kube/config --clean   delete what a run that crashed has left there`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return usageError(e, err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			// 0 stands for the preset's own where nothing was typed, and for nothing else.
			if set := cmd.Flags().Changed; set("rounds") && f.rounds < 1 || set("duration") && f.duration <= 0 {
				return usageError(e, errors.New("--rounds and --duration: want more than 0"))
			}
			f.podsGiven = cmd.Flags().Changed("pods")
			if err := f.cluster.check(cmd.Flags()); err != nil {
				return usageError(e, err)
			}
			if err := f.checkSuite(cmd.Flags()); err != nil {
				return usageError(e, err)
			}
			if f.cluster.kubeconfig != "" && !f.list {
				return runClusterBench(cmd.Context(), e, &f, cmd.Flags())
			}
			return runBench(cmd.Context(), e, &f)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(e, err) })
	flags := c.Flags()
	flags.BoolVar(&f.quick, "quick", false, "the most telling workloads on one core, at most five minutes (default)")
	flags.BoolVar(&f.full, "full", false, "every workload, path, placement and number of processes")
	flags.StringVar(&f.suite, "suite", suiteNetwork, "what to compare: network (pods), services (ClusterIPs, among up to 10,000 Services; with kube-proxy), nodeport (packets from outside), policy (NetworkPolicies)")
	flags.IntSliceVar(&f.levels, "levels", nil, "with --suite=services: numbers of Services (default 1,100,1000,10000)")
	flags.BoolVar(&f.list, "list", false, "list networks and workloads and end")
	flags.StringSliceVar(&f.networks, "networks", nil, "networks, by name (default all; the quick run in labs leaves out beeline-vxlan); NAME=PATH adds the networks of another build of Beeline, whose program or directory is PATH")
	flags.StringSliceVar(&f.workloads, "workloads", nil, "workloads, by name")
	flags.StringSliceVar(&f.paths, "paths", nil, "cross-node, same-node")
	flags.StringSliceVar(&f.placements, "placement", nil, "one-core (the whole path on one CPU), spread (one CPU for each end); on a cluster free, or one-core where nodes share a kernel")
	flags.IntSliceVar(&f.procs, "procs", nil, "numbers of parallel processes")
	flags.IntVar(&f.rounds, "rounds", 0, "rounds to keep; an interval needs at least 6 (default 9, full 10)")
	flags.DurationVar(&f.duration, "duration", 0, "length of one sample (default 500ms)")
	flags.IntVar(&f.mtu, "mtu", 1500, "MTU of the wire")
	flags.BoolVar(&f.ipv6, "ipv6", false, "measure IPv6 (suites network and nodeport)")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of the random order (default random)")
	flags.StringVar(&f.out, "out", "", "directory for results (default results/TIME)")
	flags.Float64Var(&f.steal, "max-steal", measure.DefaultGate.Steal*100, "discard what was measured beside more steal than this, in % of all CPU time")
	flags.Float64Var(&f.foreign, "max-foreign", measure.DefaultGate.Foreign*100, "discard what was measured beside more foreign load than this, in % of all CPU time; on a cluster 15 unless given")
	f.cluster.add(flags)
	flags.IntVar(&f.pods, "pods", 0, "pods to add and remove for the times of CNI ADD and DEL (default 20, full 200)")
	return c
}

func usageError(e cli.Env, err error) error {
	fmt.Fprintf(e.Stderr, "beeline-lab bench: %v\n", err)
	return exitUsage
}

func runBench(ctx context.Context, e cli.Env, f *benchFlags) error {
	if f.list {
		return listBench(e.Stdout, f.suite, f.cluster.kubeconfig != "")
	}
	if f.suite != suiteNetwork {
		return runSuite(ctx, e, f)
	}
	plan, err := f.plan()
	if err == nil {
		err = plan.Validate()
	}
	if err != nil {
		return usageError(e, err)
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(e.Stderr, "beeline-lab bench: needs root: it makes network namespaces")
		return exitMeasure
	}
	announce(e, plan.Schedule, len(plan.Networks), plan.Estimate(), plan.HasBaseline())
	progress := measure.NewProgress(e.Stderr, isTerminal(e.Stderr), plan.Estimate())
	run, err := measure.Run(ctx, plan, progress)
	return finishBench(e, f.directory(), run, "every lab is taken down", err)
}

// directory is where results go.
func (f *benchFlags) directory() string {
	if f.out != "" {
		return f.out
	}
	return filepath.Join("results", time.Now().Format("2006-01-02T15-04-05"))
}

// announce says what a run will be.
func announce(e cli.Env, s measure.Schedule, networks int, takes time.Duration, baseline bool) {
	fmt.Fprintf(e.Stderr, "%s × %s × %s, about %v. Seed %d.\nGate: %s.\n",
		plural(networks, "network"), plural(len(s.Cells), "figure"), plural(s.Rounds, "round"), takes.Round(time.Second), s.Seed, s.Gate)
	if !baseline {
		fmt.Fprintf(e.Stderr, "Without the network %s there are no ratios and there is no A/A check.\n", stats.Baseline)
	}
	for _, w := range s.LeftOut {
		fmt.Fprintf(e.Stderr, "Left out: %s.\n", w)
	}
}

// finishBench writes and shows what there is, also of a run that was interrupted; left says in which state that one
// leaves things.
func finishBench(e cli.Env, out string, run *result.Run, left string, measured error) error {
	failed := measured != nil
	say := func(err error) {
		if err != nil {
			failed = true
			fmt.Fprintf(e.Stderr, "beeline-lab bench: %v\n", err)
		}
	}
	if len(run.Samples) > 0 {
		say(measure.Save(out, run))
		say(report.New(run).WriteFile(filepath.Join(out, report.FileName)))
		say(report.New(run).Text(e.Stdout))
		fmt.Fprintf(e.Stderr, "Took %v. Results: %s\n", run.Finished.Sub(run.Started).Round(time.Second), filepath.Join(out, report.FileName))
	}
	if errors.Is(measured, context.Canceled) && !errors.Is(measured, live.ErrLeft) {
		measured = errors.New("interrupted; " + left)
	}
	say(measured)
	if errors.Is(measured, measure.ErrNothing) && len(run.Rounds) > 0 {
		fmt.Fprintln(e.Stderr, "Leave the machine alone while the bench runs. --max-foreign and --max-steal let busier rounds pass; their figures mean less.")
	}
	if failed {
		return exitMeasure
	}
	return nil
}

// choice is what the flags narrow a preset down to.
func (f *benchFlags) choice() (measure.Choice, error) {
	names, builds, err := network.ParseBuilds(f.networks)
	if err != nil {
		return measure.Choice{}, fmt.Errorf("--networks: %w", err)
	}
	choice := measure.Choice{Networks: names, Builds: builds, Workloads: f.workloads, Procs: f.procs, Rounds: f.rounds, Length: f.duration, IPv6: f.ipv6}
	for _, p := range f.paths {
		choice.Paths = append(choice.Paths, result.Path(p))
	}
	for _, p := range f.placements {
		choice.Placements = append(choice.Placements, result.Placement(p))
	}
	if f.quick && f.full {
		return choice, errors.New("either --quick or --full")
	}
	if f.steal < 0 || f.foreign < 0 {
		return choice, errors.New("--max-steal and --max-foreign cannot be negative")
	}
	return choice, nil
}

// record fills in what is recorded of a run, and its seed.
func (f *benchFlags) record(s *measure.Schedule) {
	s.Version, s.Command = version, os.Args
	if s.Seed = f.seed; s.Seed == 0 {
		s.Seed = rand.Uint64()
	}
}

// plan makes the plan that the flags ask for.
func (f *benchFlags) plan() (measure.Plan, error) {
	choice, err := f.choice()
	if err != nil {
		return measure.Plan{}, err
	}
	preset := measure.Quick
	if f.full {
		preset = measure.Full
	}
	plan, err := preset(choice)
	if err != nil {
		return plan, err
	}
	f.record(&plan.Schedule)
	plan.MTU = f.mtu
	plan.Gate.Steal, plan.Gate.Foreign = f.steal/100, f.foreign/100
	if f.podsGiven {
		plan.Pods = f.pods
	}
	return plan, nil
}

// listBench prints what can be chosen, on this machine or on a cluster.
func listBench(w io.Writer, suite string, cluster bool) error {
	var text strings.Builder
	text.WriteString("Networks:\n")
	if cluster {
		for _, c := range live.All() {
			fmt.Fprintf(&text, "  %-16s %s\n", c.Name, c.Description)
		}
	} else if suite == suiteNetwork {
		listNetworks(network.All(), &text)
	} else {
		listSuite(suite, &text)
	}
	if suite == suiteNodePort {
		fmt.Fprintf(&text, "\nFigures (--workloads):\n  %s\n", strings.Join(nodeport.Figures(), "\n  "))
		_, err := io.WriteString(w, text.String())
		return err
	}
	text.WriteString("\nWorkloads:\n")
	for _, l := range workload.All() {
		i := l.Info()
		if suite == suitePolicy && !slices.Contains(measure.PolicyWorkloads, i.Name) {
			continue
		}
		fmt.Fprintf(&text, "  %-16s %s\n", i.Name, i.Description)
		if m := l.Missing(); m != "" && !cluster { // there, the tools are in the image
			fmt.Fprintf(&text, "  %-16s %s\n", "", m)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func listNetworks(list []network.Network, text *strings.Builder) {
	width := 0
	for _, c := range list {
		width = max(width, len(c.Name()))
	}
	for _, c := range list {
		fmt.Fprintf(text, "  %-*s %s\n", width, c.Name(), c.Description())
		if u := c.Unsupported(); u != "" {
			fmt.Fprintf(text, "  %-*s %s\n", width, "", u)
		}
	}
}

// isTerminal says whether a person watches.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
