// Command beeline-agent runs the network of a node, and removes it.
package main

import (
	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
)

// version is set by the linker.
var version = "development"

func main() { cli.Main(newRootCommand) }

func newRootCommand(e cli.Env) *cobra.Command {
	return cli.Root(e, "beeline-agent", "The agent of a node: container networking that takes the straight line", version,
		newRunCommand(e),
		newUninstallCommand(e),
	)
}
