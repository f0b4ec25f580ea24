// Command beeline shows the network of a node. It reads from the agent's unix socket.
package main

import (
	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
)

// version is set by the linker.
var version = "development"

func main() { cli.Main(newRootCommand) }

func newRootCommand(e cli.Env) *cobra.Command {
	return cli.Root(e, "beeline", "Show the network of this node", version,
		newStatusCommand(e),
		newEndpointsCommand(e),
		newServicesCommand(e),
		newIPPoolsCommand(e),
		newPoliciesCommand(e),
		newPolicyCommand(e),
		newDropsCommand(e),
		newFlowsCommand(e),
	)
}
