// Command beeline is the agent, the command line that reads it, and the lab.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// env is what a command may touch of the outside, so that commands can be tested.
type env struct {
	stdout, stderr io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, env{os.Stdout, os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, e env, args []string) int {
	root := newRootCommand(e)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	if err != nil {
		fmt.Fprintf(e.stderr, "beeline: %v\n", err)
		return 1
	}
	return 0
}

// exitCode ends the program with that code and without a word: the command it ran has said what is wrong.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func newRootCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:           "beeline",
		Short:         "Container networking that takes the straight line",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("beeline {{.Version}}\n")
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.AddCommand(
		newAgentCommand(e),
		newUninstallCommand(e),
		newStatusCommand(e),
		newEndpointsCommand(e),
		newServicesCommand(e),
		newPoliciesCommand(e),
		newPolicyCommand(e),
		newDropsCommand(e),
		newFlowsCommand(e),
		newLabCommand(e),
		newBenchCommand(e),
		newConnectCommand(e),
		newReportCommand(e),
	)
	return root
}

// arguments checks positional arguments and shows how the command is used where they are not right.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: usage: %s", err, cmd.UseLine())
		}
		return nil
	}
}
