package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
)

// onCluster is the work of a command on the cluster that is up.
func onCluster(do func(ctx context.Context, b *testbed.Testbed, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		b, err := testbed.Open()
		if err != nil {
			return err
		}
		return do(cmd.Context(), b, args)
	}
}

// passOn runs a command with this process's input and output. If it fails, this process exits with its exit code.
func passOn(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(max(1, exit.ExitCode()))
	}
	return err
}

func newExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec COMMAND [ARGUMENT]...",
		Short: "Run a command in the control plane's network namespace, with KUBECONFIG and PATH set",
		Args:  cobra.MinimumNArgs(1),
		RunE: onCluster(func(ctx context.Context, b *testbed.Testbed, args []string) error {
			// nsenter finds the program in the command's PATH.
			return passOn(b.Command(ctx, args[0], args[1:]...))
		}),
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Work on one node", Args: cobra.NoArgs}
	execute := &cobra.Command{
		Use:   "exec NODE COMMAND [ARGUMENT]...",
		Short: "Run a command on a node, in all its namespaces",
		Args:  cobra.MinimumNArgs(2),
		RunE: onCluster(func(ctx context.Context, b *testbed.Testbed, args []string) error {
			command, err := b.NodeCommand(ctx, args[0], args[1:]...)
			if err != nil {
				return err
			}
			return passOn(command)
		}),
	}
	execute.Flags().SetInterspersed(false)
	cmd.AddCommand(execute)
	for _, power := range []struct {
		verb, short string
		do          func(*testbed.Testbed, context.Context, string) error
	}{
		{"stop", "Power off a node", (*testbed.Testbed).StopNode},
		{"start", "Power on a node", (*testbed.Testbed).StartNode},
		{"restart", "Power a node off and on", (*testbed.Testbed).RestartNode},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   power.verb + " NODE",
			Short: power.short,
			Args:  cobra.ExactArgs(1),
			RunE: onCluster(func(ctx context.Context, b *testbed.Testbed, args []string) error {
				return power.do(b, ctx, args[0])
			}),
		})
	}
	return cmd
}

func newLoadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE [NODE]...",
		Short: "Import an image archive into containerd of all nodes, or of the given ones",
		Args:  cobra.MinimumNArgs(1),
		RunE: onCluster(func(ctx context.Context, b *testbed.Testbed, args []string) error {
			return b.Load(ctx, args[0], args[1:]...)
		}),
	}
}

// newLogsCommand also works after a failed start.
func newLogsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logs [MACHINE [COMPONENT]]",
		Short: "Print a component's log, or list the logs",
		Args:  cobra.MaximumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 {
				log, err := os.ReadFile(plan.Log(args[0], args[1]))
				fmt.Printf("%s", log)
				return err
			}
			name := "*"
			if len(args) == 1 {
				name = args[0]
			}
			logs, err := filepath.Glob(plan.Log(name, "*"))
			if err != nil {
				return err
			}
			if len(logs) == 0 {
				return fmt.Errorf("no logs of a machine %s", name)
			}
			for _, log := range logs {
				machineName := strings.Split(strings.TrimPrefix(log, plan.DiskDir+"/"), "/")[0]
				fmt.Printf("%-4s %-24s %s\n", machineName, strings.TrimSuffix(filepath.Base(log), ".log"), log)
			}
			return nil
		},
	}
}
