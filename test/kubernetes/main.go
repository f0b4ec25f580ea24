// Command cluster runs a real Kubernetes cluster on this machine, see README.md.
package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/test/program"
)

func main() {
	program.Main("cluster", func(ctx context.Context, _ []string) error { return newRootCommand().ExecuteContext(ctx) })
}

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
