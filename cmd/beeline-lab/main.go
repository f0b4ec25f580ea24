// Command beeline-lab tries networks on nodes made of network namespaces, and compares them.
package main

import (
	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
)

// version is set by the linker.
var version = "development"

func main() { cli.Main(newRootCommand) }

func newRootCommand(e cli.Env) *cobra.Command {
	root := cli.Root(e, "beeline-lab", "Try and compare networks on nodes made of network namespaces", version,
		newUpCommand(e), newAddPodCommand(e), newDelPodCommand(e), newExecCommand(e), newStatusCommand(e), newDownCommand(e),
		newBenchCommand(e), newReportCommand(e), newConnectCommand(e),
	)
	root.Long = `Try and compare networks on nodes made of network namespaces.

A lab is a few nodes on this machine, joined by a wire. Each has a network namespace,
a cgroup and a BPF file system of its own. Its network is Beeline or one of the
alternatives. A lab needs root; "beeline-lab down" removes everything.

"beeline-lab bench" measures the networks in labs of its own, or the network of a live
cluster.`
	return root
}
