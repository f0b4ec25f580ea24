package main

import (
	"cmp"
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

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/network/script"
	"github.com/beeline-cni/beeline/lab/report"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/suite/cluster"
	"github.com/beeline-cni/beeline/lab/suite/encryption"
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
	cluster             onCluster
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
  beeline-lab bench --networks node,beeline,mine=exec:DIR   another network, see docs/networks.md
  beeline-lab bench --suite=services                  ClusterIPs with Beeline and with kube-proxy, about ten minutes
  beeline-lab bench --suite=nodeport --ipv6           external IPv6 packets to NodePorts
  beeline-lab bench --suite=policy                    what NetworkPolicies and flows cost, and whether policies are enforced
  beeline-lab bench --suite=encryption                WireGuard and IPsec with Beeline and by hand, about ten minutes
  beeline-lab bench --list                            networks and workloads
  beeline-lab bench --kubeconfig ~/.kube/config       a quick run on a cluster
  beeline-lab bench --kubeconfig ~/.kube/config --clean   delete what a crashed run left in the cluster`,
		Args: func(cmd *cobra.Command, args []string) error { return failed(e, exitUsage, cli.NoArguments(cmd, args)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.changed = cmd.Flags().Changed
			if err := f.check(); err != nil {
				return failed(e, exitUsage, err)
			}
			if f.list {
				return f.printList(e.Stdout)
			}
			o, err := f.options()
			switch {
			case err != nil:
				return failed(e, exitUsage, err)
			case f.cluster.kubeconfig != "":
				return f.runOnCluster(cmd.Context(), e, o)
			}
			return f.runInLabs(cmd.Context(), e, o)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return failed(e, exitUsage, cli.FlagError(err)) })
	flags := c.Flags()
	flags.BoolVar(&f.quick, "quick", false, "a few workloads on one core, at most five minutes (default)")
	flags.BoolVar(&f.full, "full", false, "all workloads, paths, placements and numbers of processes")
	flags.StringVar(&f.suite, "suite", suiteNetwork, "what to compare: network (pod to pod), services (ClusterIPs, with up to 10,000 Services), nodeport (external packets), policy (NetworkPolicies), encryption (WireGuard and IPsec)")
	flags.IntSliceVar(&f.levels, "levels", nil, "with --suite=services: comma-separated numbers of Services (default 1,100,1000,10000)")
	flags.BoolVar(&f.list, "list", false, "list networks and workloads, then exit")
	flags.StringSliceVar(&f.networks, "networks", nil, "comma-separated networks, see --list (default all; the quick run in labs omits beeline-vxlan and beeline-routed); NAME=PATH adds the networks of the Beeline build in directory PATH, NAME=exec:DIR a network that the programs in DIR make")
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

// failed prints the error and returns the exit code, or nil without an error.
func failed(e cli.Env, code cli.ExitCode, err error) error {
	if err == nil {
		return nil
	}
	fmt.Fprintf(e.Stderr, "beeline-lab bench: %v\n", err)
	return code
}

// runInLabs runs a suite in labs on this machine.
func (f *benchFlags) runInLabs(ctx context.Context, e cli.Env, o round.Options) error {
	s, err := suites[f.suite].new(o)
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		return failed(e, exitUsage, err)
	}
	if os.Geteuid() != 0 {
		return failed(e, exitMeasure, errors.New("needs root: it creates network namespaces"))
	}
	if p, ok := s.(interface {
		Prepare(context.Context, func(string, ...any)) error
	}); ok {
		say := func(format string, args ...any) { fmt.Fprintf(e.Stderr, format+"\n", args...) }
		if err := p.Prepare(ctx, say); err != nil {
			return failed(e, exitMeasure, fmt.Errorf("build kube-proxy (needs Go and a module proxy): %w", err))
		}
	}
	return f.run(ctx, e, s, "all labs are removed")
}

// run runs a suite, and writes and shows its results, also if it is interrupted. left is the state that it leaves then.
func (f *benchFlags) run(ctx context.Context, e cli.Env, s round.Suite, left string) error {
	announce(e, s)
	out := cmp.Or(f.out, filepath.Join("results", time.Now().Format("2006-01-02T15-04-05")))
	run, err := round.Run(ctx, s, round.NewProgress(e.Stderr, s.Estimate()))
	if errors.Is(err, context.Canceled) && !errors.Is(err, cluster.ErrLeft) {
		err = errors.New("interrupted; " + left)
	}
	if len(run.Samples) > 0 {
		page := filepath.Join(out, report.FileName)
		document := report.New(run)
		err = errors.Join(round.Save(out, run), document.WriteFile(page), document.Text(e.Stdout), err)
		fmt.Fprintf(e.Stderr, "Took %v. Results: %s\n", run.Finished.Sub(run.Started).Round(time.Second), page)
	}
	return failed(e, exitMeasure, err)
}

// announce prints the extent of a run.
func announce(e cli.Env, s round.Suite) {
	p := s.Plan()
	fmt.Fprintf(e.Stderr, "%d networks × %d figures × %d rounds, about %v. Seed %d.\nGate: %s.\n",
		len(s.Names()), len(p.Cells), p.Rounds, s.Estimate().Round(time.Second), p.Seed, p.Gate)
	if !suite.HasBaseline(s) {
		fmt.Fprintf(e.Stderr, "Without the network %s there are no ratios and no A/A check.\n", stats.Baseline)
	}
	for _, w := range p.LeftOut {
		fmt.Fprintf(e.Stderr, "Omitted: %s.\n", w)
	}
}

// options returns the options that the flags set.
func (f *benchFlags) options() (o round.Options, err error) {
	o = round.Options{
		Full: f.full, Workloads: f.workloads, Procs: f.procs, Rounds: f.rounds, Length: f.duration, Levels: f.levels,
		IPv6: f.ipv6, Seed: f.seed, Version: version, Command: os.Args,
	}
	names, others, err := script.Parse(f.networks)
	if err != nil {
		return o, fmt.Errorf("--networks: %w", err)
	}
	if o.Others = others; len(others) > 0 && (f.suite != suiteNetwork || f.cluster.kubeconfig != "") {
		return o, errors.New("--networks: networks of others (exec:) take part in --suite=network in labs only")
	}
	if o.Networks, o.Builds, err = network.ParseBuilds(names); err != nil {
		return o, fmt.Errorf("--networks: %w", err)
	}
	for _, p := range f.paths {
		o.Paths = append(o.Paths, result.Path(p))
	}
	for _, p := range f.placements {
		o.Placements = append(o.Placements, result.Placement(p))
	}
	if f.changed("rounds") && f.rounds < 1 || f.changed("duration") && f.duration <= 0 {
		return o, errors.New("--rounds and --duration must be more than 0") // 0 stands for the default
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
	rows := [][]string{{"NETWORK", ""}}
	if f.cluster.kubeconfig != "" {
		for _, n := range cluster.All() {
			rows = append(rows, []string{n.Name, n.Description})
		}
	} else {
		for _, n := range suites[f.suite].networks() {
			rows = append(rows, []string{n.Name(), strings.TrimSpace(n.Description() + " " + n.Unsupported())})
		}
	}
	rows = append(rows, []string{"", ""}, []string{"WORKLOAD", ""})
	if f.suite == suiteNodePort {
		for _, name := range nodeport.Figures() {
			rows = append(rows, []string{name, ""})
		}
		return cli.Table(w, rows)
	}
	all, chosen := workload.All(), []string(nil)
	switch f.suite {
	case suitePolicy:
		chosen = policy.Workloads
	case suiteEncryption:
		all, chosen = append(all, workload.NewPaced(0)), encryption.Workloads
	}
	for _, l := range all {
		i, missing := l.Info(), l.Missing()
		if f.cluster.kubeconfig != "" { // the image has the tools
			missing = ""
		}
		if chosen == nil || slices.Contains(chosen, i.Name) {
			rows = append(rows, []string{i.Name, strings.TrimSpace(i.Description + " " + missing)})
		}
	}
	return cli.Table(w, rows)
}
