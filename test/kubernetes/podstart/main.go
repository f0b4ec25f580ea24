// Command podstart measures how long pods take to start with Beeline and with the bridge network on the testbed. For each
// network it starts a cluster, creates pods at once, round after round, and removes the cluster. It prints the time from
// a pod's creation until its container runs (p50, p99) and the time until all run.
//
//	make image && go run ./test/kubernetes/podstart [-pods 100] [-rounds 3] [-networks beeline,bridge]
//
// The time includes kubelet and container runtime. `beeline-lab bench` measures the network's own part, CNI ADD. Other
// load on the machine changes the figures of both networks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
	"github.com/beeline-cni/beeline/test/program"
)

func main() { program.Main("podstart", run) }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("podstart", flag.ContinueOnError)
	pods := flags.Int("pods", 100, "how many pods are created at once, on two nodes")
	rounds := flags.Int("rounds", 3, "how often, for each network")
	networks := flags.String("networks", "beeline,bridge", "`list` of networks of the testbed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parts, err := testbed.Build(ctx, plan.Options{}.Defaults().Kubernetes, progress)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NETWORK\tROUND\tPODS\tP50\tP99\tALL")
	for _, network := range strings.Split(*networks, ",") {
		measured, err := measure(ctx, network, parts, *pods, *rounds)
		for i, starts := range measured {
			fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\n", network, i+1, len(starts.each), round(starts.quantile(0.5)), round(starts.quantile(0.99)), round(starts.all))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("network %s: %w", network, err), table.Flush())
		}
	}
	return table.Flush()
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// note marks the clusters of this program.
const note = "podstart"

// measure starts a cluster with this network, starts pods round after round, and removes the cluster.
func measure(ctx context.Context, network string, parts testbed.Parts, pods, rounds int) (measured []starts, err error) {
	cluster, err := testbed.Up(ctx, plan.Options{Network: network, Note: note}.Defaults(), parts, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, testbed.Down(context.WithoutCancel(ctx), note)) }()
	// The first pods of a node are slower.
	if _, err := startPods(ctx, cluster, 2*len(cluster.Cluster.Nodes)); err != nil {
		return nil, err
	}
	for range rounds {
		s, err := startPods(ctx, cluster, pods)
		if err != nil {
			return measured, err
		}
		measured = append(measured, s)
	}
	return measured, nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
