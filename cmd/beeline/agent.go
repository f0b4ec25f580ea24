package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/internal/agent"
	"github.com/beeline-cni/beeline/internal/install"
)

// version is set by the linker.
var version = "development"

func newAgentCommand(e env) *cobra.Command {
	config := agent.Defaults()
	level, format := "info", "text"
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the network of this node",
		Long: `Run the network of this node.

The agent reads the cluster's nodes from an API server or from a directory of manifests,
gives pods their addresses when the CNI plugin asks, and keeps routes, BPF programs and
tables right.
Traffic does not depend on it: it can be stopped, killed and replaced at any time.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(e, level, format)
			if err != nil {
				return err
			}
			if err := config.Validate(); err == nil && os.Geteuid() != 0 {
				return errors.New("the agent makes devices, routes and BPF programs and needs root")
			}
			config.MemoryLimited = os.Getenv("GOMEMLIMIT") != "" // the Go runtime's own
			return agent.Run(cmd.Context(), config, version, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&config.NodeName, "node-name", config.NodeName, "metadata.name of this node's Node object")
	f.StringVar(&config.Manifests, "manifests", config.Manifests, "directory of Kubernetes manifests to read instead of an API server; watched")
	f.StringVar(&config.Kubeconfig, "kubeconfig", config.Kubeconfig, "kubeconfig of the API server; empty: the service account of the agent's pod")
	f.StringVar(&config.Socket, "socket", config.Socket, "unix socket for the CNI plugin and the command line")
	f.StringVar(&config.StateDir, "state-dir", config.StateDir, "directory of the endpoint files")
	f.StringVar(&config.BPFFS, "bpffs", config.BPFFS, "directory on a BPF file system for pinned maps and links")
	f.StringVar(&config.APIServer, "api-server", config.APIServer, "https URL of the API server for the service account of the agent's pod, or several with commas; empty: what the pod was told")
	f.StringVar(&config.Uplink, "uplink", config.Uplink, `devices to the world, with commas; the first one is also that towards other nodes; or "auto"`)
	f.IntVar(&config.MTU, "mtu", config.MTU, "MTU of pods in bytes; 0 follows the uplink")
	f.StringVar((*string)(&config.Routing), "routing", string(config.Routing), "who forwards between pods: ebpf, kernel")
	f.StringVar((*string)(&config.Tunnel), "tunnel", string(config.Tunnel), "nodes to reach through VXLAN: none, vxlan (all); auto: those of other subnets")
	f.IntVar(&config.TunnelPort, "tunnel-port", config.TunnelPort, "UDP port of VXLAN, the same on all nodes")
	f.IntVar(&config.RoutesMax, "routes-max", config.RoutesMax, "how many prefixes of nodes there can be, two of each node and family; 0: by the number of nodes when the agent starts, at least 32768")
	f.BoolVar(&config.Masquerade, "masquerade", config.Masquerade, "give what pods send outside the cluster the node's address")
	f.TextVar(&config.NodeCIDRs, "node-cidrs", config.NodeCIDRs, "comma-separated CIDRs of the addresses that nodes have; others in a Node's status are refused; empty: private ones, and public first ones where this node has such")
	f.TextVar(&config.NonMasquerade, "non-masquerade-cidrs", config.NonMasquerade, "networks outside the cluster that see the addresses of pods all the same, with commas")
	addServiceFlags(f, &config.ServiceConfig)
	addPolicyFlags(f, &config.PolicyConfig)
	addFlowFlags(f, &config.FlowConfig)
	f.StringVar(&config.CNIConfDir, "cni-conf-dir", config.CNIConfDir, "where to put "+install.Conflist+" when the node is ready; empty: nowhere")
	f.StringVar(&config.CNIBinDir, "cni-bin-dir", config.CNIBinDir, "where to put the CNI plugins "+install.Plugin+" and "+install.PortMap+"; empty: nowhere")
	f.StringVar(&config.CommandDir, "command-dir", config.CommandDir, "where to put this program for people at the node; empty: nowhere")
	f.StringVar(&config.CNIPluginFrom, "cni-plugin-from", config.CNIPluginFrom, "directory to install programs from; empty: that of this program")
	f.StringVar(&config.MetricsAddress, "metrics-address", config.MetricsAddress, "where to serve /metrics, /healthz and /readyz; empty: nowhere")
	f.StringVar(&level, "log-level", level, "debug, info, warn, error")
	f.StringVar(&format, "log-format", format, "text, json")
	return cmd
}

func newLogger(e env, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn, error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(e.stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(e.stderr, options)), nil
	}
	return nil, fmt.Errorf("--log-format: %q is neither text nor json", format)
}
