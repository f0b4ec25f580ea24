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
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/report"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/suite/cluster"
	"github.com/beeline-cni/beeline/lab/suite/nodeport"
	"github.com/beeline-cni/beeline/lab/suite/policy"
	"github.com/beeline-cni/beeline/lab/workload"
)

// The exit codes of bench beside 0.
const (
	exitUsage   cli.ExitCode = 2 // wrong usage
	exitMeasure cli.ExitCode = 3 // no result, or an incomplete one
)

// benchFlags are the flags of bench.
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
	cluster             clusterFlags
	// changed reports whether the command line sets a flag.
	changed func(name string) bool
}

func newBenchCommand(e cli.Env) *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Compare Beeline with the node's own network and with other CNI plugins, on this machine or on a cluster",
		Long: `Compare Beeline with the node's own network and with other CNI plugins.

In labs (the default; needs root), bench makes a lab of two nodes for each network. In each round it runs all
workloads over all networks in random order, and it compares networks only within a round.

With --kubeconfig, bench measures a live cluster with any CNI plugin. It creates pods on two nodes, compares the
routes between them (node, pod, service, nodeport) and deletes what it created, also when it is interrupted. The
nodes need the image that "make image-bench" builds. deploy/bench-rbac.yaml grants the rights that bench needs.

The suites services and nodeport compare with kube-proxy. The first of these runs builds kube-proxy from source: this
takes some minutes and needs Go and a module proxy.

Bench writes a directory with results.json (every sample), report.html, and benchmark.txt for benchstat.

Exit codes: 0 success, 2 wrong usage, 3 no result, or an incomplete one.`,
		Example: `  beeline-lab bench                                   a quick run, at most five minutes
  beeline-lab bench --full --out results/full         everything, more than an hour
  beeline-lab bench --networks node,beeline --workloads tcp_rr --rounds 20
  beeline-lab bench --networks node,beeline,old=../before/bin --rounds 20   this build and another one in the same rounds
  beeline-lab bench --suite=services                  ClusterIPs with Beeline and with kube-proxy, about ten minutes
  beeline-lab bench --suite=nodeport --ipv6           external IPv6 packets to NodePorts
  beeline-lab bench --suite=policy                    what NetworkPolicies and flows cost, and whether policies are enforced
  beeline-lab bench --list                            networks and workloads
  beeline-lab bench --kubeconfig ~/.kube/config       a quick run on a cluster
  beeline-lab bench --kubeconfig ~/.kube/config --clean   delete what a crashed run left in the cluster`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return usageError(e, err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			// 0 stands for the default; the command line cannot set it.
			if set := cmd.Flags().Changed; set("rounds") && f.rounds < 1 || set("duration") && f.duration <= 0 {
				return usageError(e, errors.New("--rounds and --duration must be more than 0"))
			}
			f.changed = cmd.Flags().Changed
			if err := f.cluster.check(cmd.Flags()); err != nil {
				return usageError(e, err)
			}
			if err := f.checkSuite(cmd.Flags()); err != nil {
				return usageError(e, err)
			}
			switch {
			case f.list:
				return f.printList(e.Stdout)
			case f.cluster.kubeconfig != "":
				return f.runOnCluster(cmd.Context(), e)
			}
			return f.runInLabs(cmd.Context(), e)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(e, err) })
	flags := c.Flags()
	flags.BoolVar(&f.quick, "quick", false, "a few workloads on one core, at most five minutes (default)")
	flags.BoolVar(&f.full, "full", false, "all workloads, paths, placements and numbers of processes")
	flags.StringVar(&f.suite, "suite", suiteNetwork, "what to compare: network (pod to pod), services (ClusterIPs, with up to 10,000 Services), nodeport (external packets), policy (NetworkPolicies)")
	flags.IntSliceVar(&f.levels, "levels", nil, "with --suite=services: comma-separated numbers of Services (default 1,100,1000,10000)")
	flags.BoolVar(&f.list, "list", false, "list networks and workloads, then exit")
	flags.StringSliceVar(&f.networks, "networks", nil, "comma-separated networks, see --list (default all; the quick run in labs omits beeline-vxlan); NAME=PATH adds the networks of the Beeline build in directory PATH")
	flags.StringSliceVar(&f.workloads, "workloads", nil, "comma-separated workloads, see --list (default: those of the quick or full run)")
	flags.StringSliceVar(&f.paths, "paths", nil, "comma-separated paths: cross-node, same-node")
	flags.StringSliceVar(&f.placements, "placement", nil, "comma-separated CPU placements: one-core (the whole path on one CPU), spread (one CPU for each end); on a cluster: free, or one-core if the nodes share a kernel")
	flags.IntSliceVar(&f.procs, "procs", nil, "comma-separated numbers of parallel processes")
	flags.IntVar(&f.rounds, "rounds", 0, "number of valid rounds; a confidence interval needs at least 6 (default 9, with --full 10)")
	flags.DurationVar(&f.duration, "duration", 0, "length of a sample (default 500ms)")
	flags.IntVar(&f.mtu, "mtu", 1500, "MTU of the link between the nodes")
	flags.BoolVar(&f.ipv6, "ipv6", false, "measure IPv6 (suites network and nodeport)")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of the random order (default random)")
	flags.StringVar(&f.out, "out", "", "directory for the results (default results/TIME)")
	flags.Float64Var(&f.steal, "max-steal", round.DefaultGate.Steal*100, "discard measurements with more CPU steal than this, in % of all CPU time")
	flags.Float64Var(&f.foreign, "max-foreign", round.DefaultGate.Foreign*100, "discard measurements with more CPU load by other processes than this, in % of all CPU time; on a cluster 15 unless set")
	f.cluster.add(flags)
	flags.IntVar(&f.pods, "pods", 0, "number of CNI ADDs and DELs to time (default 20, with --full 200)")
	return c
}

func usageError(e cli.Env, err error) error {
	fmt.Fprintf(e.Stderr, "beeline-lab bench: %v\n", err)
	return exitUsage
}

// runInLabs runs a suite in labs on this machine.
func (f *benchFlags) runInLabs(ctx context.Context, e cli.Env) error {
	s, err := f.newSuite()
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		return usageError(e, err)
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(e.Stderr, "beeline-lab bench: needs root: it creates network namespaces")
		return exitMeasure
	}
	if p, ok := s.(interface {
		Prepare(context.Context, func(string, ...any)) error
	}); ok {
		say := func(format string, args ...any) { fmt.Fprintf(e.Stderr, format+"\n", args...) }
		if err := p.Prepare(ctx, say); err != nil {
			fmt.Fprintf(e.Stderr, "beeline-lab bench: build kube-proxy (needs Go and a module proxy): %v\n", err)
			return exitMeasure
		}
	}
	return f.run(ctx, e, s, "all labs are removed")
}

// run runs a suite, and writes and shows its results. left is the state that an interrupted run leaves.
func (f *benchFlags) run(ctx context.Context, e cli.Env, s round.Suite, left string) error {
	announce(e, s)
	run, err := round.Run(ctx, s, round.NewProgress(e.Stderr, isTerminal(e.Stderr), s.Estimate()))
	return finishBench(e, f.directory(), run, left, err)
}

// directory is the directory for the results.
func (f *benchFlags) directory() string {
	if f.out != "" {
		return f.out
	}
	return filepath.Join("results", time.Now().Format("2006-01-02T15-04-05"))
}

// announce prints the extent of a run.
func announce(e cli.Env, s round.Suite) {
	p := s.Plan()
	fmt.Fprintf(e.Stderr, "%s × %s × %s, about %v. Seed %d.\nGate: %s.\n",
		plural(len(s.Names()), "network"), plural(len(p.Cells), "figure"), plural(p.Rounds, "round"), s.Estimate().Round(time.Second), p.Seed, p.Gate)
	if !suite.HasBaseline(s) {
		fmt.Fprintf(e.Stderr, "Without the network %s there are no ratios and no A/A check.\n", stats.Baseline)
	}
	for _, w := range p.LeftOut {
		fmt.Fprintf(e.Stderr, "Omitted: %s.\n", w)
	}
}

// finishBench writes and shows the results, also of an interrupted run.
func finishBench(e cli.Env, out string, run *result.Run, left string, measured error) error {
	failed := measured != nil
	say := func(err error) {
		if err != nil {
			failed = true
			fmt.Fprintf(e.Stderr, "beeline-lab bench: %v\n", err)
		}
	}
	if len(run.Samples) > 0 {
		say(round.Save(out, run))
		say(report.New(run).WriteFile(filepath.Join(out, report.FileName)))
		say(report.New(run).Text(e.Stdout))
		fmt.Fprintf(e.Stderr, "Took %v. Results: %s\n", run.Finished.Sub(run.Started).Round(time.Second), filepath.Join(out, report.FileName))
	}
	if errors.Is(measured, context.Canceled) && !errors.Is(measured, cluster.ErrLeft) {
		measured = errors.New("interrupted; " + left)
	}
	say(measured)
	if errors.Is(measured, round.ErrNothing) && len(run.Rounds) > 0 {
		fmt.Fprintln(e.Stderr, "Keep the machine idle while the bench runs. Higher --max-foreign and --max-steal accept busier rounds, whose figures mean less.")
	}
	if failed {
		return exitMeasure
	}
	return nil
}

// options returns the options that the flags set.
func (f *benchFlags) options() (round.Options, error) {
	o := round.Options{
		Full: f.full, Workloads: f.workloads, Procs: f.procs, Rounds: f.rounds, Length: f.duration, Levels: f.levels,
		IPv6: f.ipv6, Seed: f.seed, Version: version, Command: os.Args,
	}
	var err error
	if o.Networks, o.Builds, err = network.ParseBuilds(f.networks); err != nil {
		return o, fmt.Errorf("--networks: %w", err)
	}
	for _, p := range f.paths {
		o.Paths = append(o.Paths, result.Path(p))
	}
	for _, p := range f.placements {
		o.Placements = append(o.Placements, result.Placement(p))
	}
	if f.quick && f.full {
		return o, errors.New("--quick and --full exclude each other")
	}
	if f.steal < 0 || f.foreign < 0 {
		return o, errors.New("--max-steal and --max-foreign cannot be negative")
	}
	if f.changed("max-steal") {
		share := f.steal / 100
		o.Steal = &share
	}
	if f.changed("max-foreign") {
		share := f.foreign / 100
		o.Foreign = &share
	}
	if f.changed("mtu") {
		o.MTU = &f.mtu
	}
	if f.changed("pods") {
		o.Pods = &f.pods
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return o, nil
}

// printList prints the networks and workloads to choose from, on this machine or on a cluster.
func (f *benchFlags) printList(w io.Writer) error {
	var text strings.Builder
	text.WriteString("Networks:\n")
	onCluster := f.cluster.kubeconfig != ""
	if onCluster {
		for _, n := range cluster.All() {
			fmt.Fprintf(&text, "  %-16s %s\n", n.Name, n.Description)
		}
	} else {
		listNetworks(suites[f.suite].networks(), &text)
	}
	if f.suite == suiteNodePort {
		fmt.Fprintf(&text, "\nFigures (--workloads):\n  %s\n", strings.Join(nodeport.Figures(), "\n  "))
		_, err := io.WriteString(w, text.String())
		return err
	}
	text.WriteString("\nWorkloads:\n")
	for _, l := range workload.All() {
		i := l.Info()
		if f.suite == suitePolicy && !slices.Contains(policy.Workloads, i.Name) {
			continue
		}
		fmt.Fprintf(&text, "  %-16s %s\n", i.Name, i.Description)
		if m := l.Missing(); m != "" && !onCluster { // the image has the tools
			fmt.Fprintf(&text, "  %-16s %s\n", "", m)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func listNetworks(list []network.Network, text *strings.Builder) {
	width := 0
	for _, n := range list {
		width = max(width, len(n.Name()))
	}
	for _, n := range list {
		fmt.Fprintf(text, "  %-*s %s\n", width, n.Name(), n.Description())
		if u := n.Unsupported(); u != "" {
			fmt.Fprintf(text, "  %-*s %s\n", width, "", u)
		}
	}
}

// isTerminal reports whether the output is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
