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
	return cli.Root(e, "beeline-agent", "Container networking agent of a node", version,
		newRunCommand(e),
		newUninstallCommand(e),
	)
}
