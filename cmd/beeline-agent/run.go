package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agent"
)

func newRunCommand(e cli.Env) *cobra.Command {
	config := agent.Defaults()
	level, format := "info", "text"
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the network of this node",
		Long: `Run the network of this node.

The agent reads Nodes, Pods, Services and NetworkPolicies from an API server or from a
directory of manifests. It assigns addresses to pods when the CNI plugin requests them,
and keeps routes, BPF programs and BPF maps up to date.
Traffic continues without the agent: stop, kill or replace it at any time.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(e, level, format)
			if err != nil {
				return err
			}
			if err := config.Validate(); err == nil && os.Geteuid() != 0 {
				return errors.New("run needs root: it creates devices, routes and BPF programs")
			}
			config.MemoryLimited = os.Getenv("GOMEMLIMIT") != "" // the Go runtime's own
			return agent.Run(cmd.Context(), config, version, log)
		},
	}
	f := cmd.Flags()
	addNodeFlags(f, &config)
	addNetworkFlags(f, &config)
	addServiceFlags(f, &config.ServiceConfig)
	addPolicyFlags(f, &config.PolicyConfig)
	addFlowFlags(f, &config.FlowConfig)
	addSocketFlags(f, &config.SocketConfig)
	f.StringVar(&level, "log-level", level, "debug, info, warn, error")
	f.StringVar(&format, "log-format", format, "text, json")
	return cmd
}

func newLogger(e cli.Env, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn, error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(e.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(e.Stderr, options)), nil
	}
	return nil, fmt.Errorf("--log-format: %q is neither text nor json", format)
}
