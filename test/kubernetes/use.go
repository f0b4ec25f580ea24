package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
)

// passOn runs a command with this process's input and output. Its exit code becomes this program's.
func passOn(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return errors.Join(errPassedOn, err)
	}
	return err
}

func newExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec COMMAND [ARGUMENT]...",
		Short: "Run a command in the control plane's network namespace, with KUBECONFIG and PATH set",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := testbed.Open()
			if err != nil {
				return err
			}
			// nsenter finds the program in the command's PATH.
			return passOn(b.Command(cmd.Context(), args[0], args[1:]...))
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Work on one node",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	execute := &cobra.Command{
		Use:   "exec NODE COMMAND [ARGUMENT]...",
		Short: "Run a command on a node, in all its namespaces",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := testbed.Open()
			if err != nil {
				return err
			}
			command, err := b.NodeCommand(cmd.Context(), args[0], args[1:]...)
			if err != nil {
				return err
			}
			return passOn(command)
		},
	}
	execute.Flags().SetInterspersed(false)
	cmd.AddCommand(execute,
		newPowerCommand("stop", "Power off a node", (*testbed.Testbed).StopNode),
		newPowerCommand("start", "Power on a node", (*testbed.Testbed).StartNode),
		newPowerCommand("restart", "Power a node off and on", (*testbed.Testbed).RestartNode),
	)
	return cmd
}

func newPowerCommand(verb, short string, do func(*testbed.Testbed, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " NODE",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := testbed.Open()
			if err != nil {
				return err
			}
			return do(b, cmd.Context(), args[0])
		},
	}
}

func newLoadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE [NODE]...",
		Short: "Import an image archive into containerd of all nodes, or of the given ones",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := testbed.Open()
			if err != nil {
				return err
			}
			return b.Load(cmd.Context(), args[0], args[1:]...)
		},
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
				return printFile(plan.Log(args[0], args[1]))
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

func printFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(os.Stdout, f)
	return err
}
