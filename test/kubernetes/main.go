// Command cluster runs a real Kubernetes cluster on this machine, see README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	fail(err)
}

// fail exits. For a failed command that passOn ran, it uses that command's exit code and prints nothing.
func fail(err error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit) && errors.Is(err, errPassedOn):
		os.Exit(max(1, exit.ExitCode()))
	}
	fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
	os.Exit(1)
}

// errPassedOn marks the failure of a command whose output was shown.
var errPassedOn = errors.New("command failed")

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes cluster on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		newUpCommand(), newDownCommand(), newBuildCommand(), newStatusCommand(),
		newExecCommand(), newNodeCommand(), newLoadCommand(), newLogsCommand(),
	)
	return root
}
