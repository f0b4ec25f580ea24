package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/lab/kubebuild"
	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
)

// say prints progress.
func say(format string, args ...any) { fmt.Printf("cluster: "+format+"\n", args...) }

func newUpCommand() *cobra.Command {
	o := plan.Options{}.Defaults()
	o.Proxy = "" // depends on the network
	manifest, archive := testbed.Manifest, testbed.Archive
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
			parts.Manifest, parts.Archive = manifest, archive
			if o.Network == plan.NetworkBeeline {
				if err := present(manifest, archive); err != nil {
					return err
				}
			}
			b, err := testbed.Up(cmd.Context(), o, parts, say)
			if err != nil {
				return err
			}
			return explainUse(b)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", o.Nodes, "number of nodes")
	f.StringVar(&o.Kubernetes, "kubernetes", o.Kubernetes, "version of Kubernetes")
	f.StringVar(&o.Network, "network", o.Network, "network of the pods: "+strings.Join(plan.Networks, ", "))
	f.StringVar(&o.Topology, "topology", o.Topology, "links between the nodes: "+strings.Join(plan.Topologies, ", "))
	f.StringVar(&o.Family, "family", o.Family, "IP families: "+strings.Join(plan.Families, ", "))
	f.StringVar(&o.Proxy, "proxy", o.Proxy, "mode of kube-proxy: "+strings.Join(plan.Proxies, ", ")+"; empty: none with the network beeline, else iptables")
	f.StringVar(&o.Note, "note", o.Note, "who uses the cluster and why, for its other users")
	f.StringVar(&manifest, "manifest", manifest, "manifest to apply for the network beeline")
	f.StringVar(&archive, "archive", archive, "image archive for the network beeline")
	return cmd
}

// present checks that files exist before the cluster starts.
func present(files ...string) error {
	var errs []error
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func explainUse(b *testbed.Testbed) error {
	o := b.Cluster.Options
	say("Kubernetes %s with %d nodes, network %s: up after %.0f s. To use it:", o.Kubernetes, o.Nodes, o.Network, time.Since(b.Started).Seconds())
	program := os.Args[0]
	if strings.Contains(program, "/go-build") {
		program = "go run ./test/kubernetes"
	}
	for _, line := range []string{"exec kubectl get pods -A", "node exec n1 ip route", "logs n1 kubelet", "down"} {
		fmt.Printf("  %s %s\n", program, line)
	}
	fmt.Printf("Other programs need the network namespace %s and the variables in %s.\n", plan.NetnsPath(plan.ControlPlane), plan.EnvFile)
	return nil
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
	var only []string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build programs and images into the cache",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(only) == 0 {
				_, err := testbed.Build(cmd.Context(), version, say)
				return err
			}
			cache, err := kubebuild.OpenCache()
			if err != nil {
				return err
			}
			return kubebuild.Build(cmd.Context(), cache, version, only, say)
		},
	}
	cmd.Flags().StringVar(&version, "kubernetes", version, "version of Kubernetes")
	cmd.Flags().StringSliceVar(&only, "only", nil, "build only these programs, and no images")
	return cmd
}

func newStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show machines and components",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := testbed.Open()
			if err != nil {
				return err
			}
			o := b.Cluster.Options
			fmt.Printf("Kubernetes %s, network %s, %s, %s, kube-proxy: %s, up since %s (%s)\n",
				o.Kubernetes, o.Network, o.Topology, o.Family, o.Proxy, b.Started.Format(time.DateTime), note(o.Note))
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
		},
	}
}

func note(text string) string {
	if text == "" {
		return "without a note"
	}
	return text
}

func describe(s machine.State) string {
	text := "not running"
	if s.Running {
		text = "running"
	}
	if s.Ended > 0 {
		text += fmt.Sprintf(", ended %d times, the last time with %s", s.Ended, s.Why)
	}
	return text
}
