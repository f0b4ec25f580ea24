// Package contender holds the networks under test, one file each. A contender is brought up on a lab of its
// own and makes pods there; adding one is adding a file and a line in All.
package contender

import (
	"context"

	"github.com/beeline-cni/beeline/lab/topology"
)

// Contender is one network under test. Its methods are called from one goroutine.
type Contender interface {
	// Name is the one in tables and on the command line: "beeline", "node+netfilter", …
	Name() string
	// Description is one sentence for the report.
	Description() string
	// Unsupported is empty, or begins "not on this kernel: " (or "not installed: ") and says what is missing.
	Unsupported() string
	// Up makes the network of a fresh lab. What it starts ends with the lab.
	Up(ctx context.Context, lab *topology.Lab) error
	// AddPod makes a pod on a node, through the contender's CNI plugin where it has one; contenders
	// without pods return the node itself.
	AddPod(ctx context.Context, lab *topology.Lab, node *topology.Node, name string) (*topology.Pod, error)
	// DelPod removes a pod made by AddPod.
	DelPod(ctx context.Context, lab *topology.Lab, pod *topology.Pod) error
	// Facts are what a reader needs to judge the comparison: versions, rules installed, MTU in the pod.
	Facts(ctx context.Context, lab *topology.Lab) map[string]string
	// AgentPID is the process id of the node's agent, 0 where there is none.
	AgentPID(node *topology.Node) int
}
