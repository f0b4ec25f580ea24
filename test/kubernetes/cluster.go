package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
)

// say prints progress.
func say(format string, args ...any) { fmt.Printf("cluster: "+format+"\n", args...) }

func newUpCommand() *cobra.Command {
	o := plan.Options{}.Defaults()
	o.Proxy = "" // depends on the network
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing and start a cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o = o.Defaults()
			if err := o.Validate(); err != nil {
				return err
			}
			parts, err := testbed.Build(cmd.Context(), o.Kubernetes, say)
			if err != nil {
				return err
			}
			b, err := testbed.Up(cmd.Context(), o, parts, say)
			if err != nil {
				return err
			}
			explainUse(b)
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", o.Nodes, "number of nodes")
	f.StringVar(&o.Kubernetes, "kubernetes", o.Kubernetes, "version of Kubernetes")
	f.StringVar(&o.Network, "network", o.Network, "network of the pods: "+strings.Join(plan.Networks, ", "))
	f.StringVar(&o.Topology, "topology", o.Topology, "links between the nodes: "+strings.Join(plan.Topologies, ", "))
	f.StringVar(&o.Family, "family", o.Family, "IP families: "+strings.Join(plan.Families, ", "))
	f.StringVar(&o.Proxy, "proxy", o.Proxy, "mode of kube-proxy: "+strings.Join(plan.Proxies, ", ")+"; empty: none with the network beeline, else iptables")
	f.StringVar(&o.Pools, "pools", o.Pools, "IPPools with addresses of the nodes' link: "+strings.Join(plan.AllPools, ", "))
	f.StringVar(&o.Note, "note", o.Note, "who uses the cluster and why, for its other users")
	return cmd
}

func explainUse(b *testbed.Testbed) {
	o := b.Cluster.Options
	say("Kubernetes %s with %d nodes, network %s: up after %.0f s. To use it:", o.Kubernetes, o.Nodes, o.Network, time.Since(b.Started).Seconds())
	program := os.Args[0]
	if strings.Contains(program, "/go-build") {
		program = "go run ./test/kubernetes"
	}
	for _, line := range []string{"exec kubectl get pods -A", "node exec n1 ip route", "logs n1 kubelet", "down"} {
		fmt.Printf("  %s %s\n", program, line)
	}
}

func newDownCommand() *cobra.Command {
	note := ""
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove the cluster, but not the caches",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			begin := time.Now()
			if err := testbed.Down(cmd.Context(), note); err != nil {
				return err
			}
			say("no cluster is up (took %.1f s)", time.Since(begin).Seconds())
			return nil
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "remove the cluster only if it was started with this note")
	return cmd
}

func newBuildCommand() *cobra.Command {
	version := plan.Options{}.Defaults().Kubernetes
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build programs and images into the cache",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := testbed.Build(cmd.Context(), version, say)
			return err
		},
	}
	cmd.Flags().StringVar(&version, "kubernetes", version, "version of Kubernetes")
	return cmd
}

func newStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show machines and components",
		Args:  cobra.NoArgs,
		RunE: onCluster(func(_ context.Context, b *testbed.Testbed, _ []string) error {
			o := b.Cluster.Options
			fmt.Printf("Kubernetes %s, network %s, %s, %s, kube-proxy: %s, up since %s (note: %q)\n",
				o.Kubernetes, o.Network, o.Topology, o.Family, o.Proxy, b.Started.Format(time.DateTime), o.Note)
			for _, m := range b.Cluster.Machines() {
				fmt.Printf("%s  %v\n", m.Name, m.Addresses())
				states, err := machine.States(m.Name)
				if errors.Is(err, machine.ErrStopped) {
					fmt.Println("  is powered off")
					continue
				}
				if err != nil {
					return err
				}
				for _, s := range states {
					fmt.Printf("  %-24s %s\n", s.Service, describe(s))
				}
			}
			return nil
		}),
	}
}

func describe(s machine.State) string {
	text := "not running"
	if s.Running {
		text = "running"
	}
	if s.Ended > 0 {
		text += fmt.Sprintf(", ended %d times, the last time with exit status %d", s.Ended, s.Status)
	}
	return text
}
