// Command beeline-lab runs and compares pod networks on nodes that are network namespaces.
package main

import (
	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
)

// version is set by the linker.
var version = "development"

func main() { cli.Main(newRootCommand) }

func newRootCommand(e cli.Env) *cobra.Command {
	root := cli.Root(e, "beeline-lab", "Try and compare pod networks on one machine", version,
		newUpCommand(e), newAddPodCommand(e), newDelPodCommand(e), newExecCommand(e), newStatusCommand(e), newDownCommand(e),
		newBenchCommand(e), newReportCommand(e), newConnectCommand(e),
	)
	root.Long = `Try and compare pod networks on one machine.

A lab is a few nodes on this machine that share a virtual link. Each node is a network
namespace with its own cgroup and BPF file system. The pods of a lab use Beeline or
another CNI plugin. A lab needs root; "beeline-lab down" removes it.

"beeline-lab bench" compares networks in labs that it makes and removes, or measures the
network of a live cluster.`
	root.Example = `  beeline-lab up                                   two nodes with Beeline
  beeline-lab add-pod n1 client
  beeline-lab add-pod n2 server
  beeline-lab exec client -- ping -c 3 server
  beeline-lab down`
	return root
}
