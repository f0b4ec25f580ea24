// Package network holds the networks under test, one file each. A network is brought up on a lab of its
// own and makes pods there; adding one is adding a file and a line in All.
package network

import (
	"context"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Network is one network under test. Its methods are called from one goroutine.
type Network interface {
	// Name is the one in tables and on the command line: "beeline", "node+netfilter", …
	Name() string
	// Description is one sentence for the report.
	Description() string
	// Unsupported is empty, or begins "not on this kernel: " (or "not installed: ") and says what is missing.
	Unsupported() string
	// Up makes the network of a fresh lab. What it starts ends with the lab.
	Up(ctx context.Context, lab *testbed.Lab) error
	// AddPod makes a pod on a node, through the network's CNI plugin where it has one; networks
	// without pods return the node itself.
	AddPod(ctx context.Context, lab *testbed.Lab, node *testbed.Node, name string) (*testbed.Pod, error)
	// DelPod removes a pod made by AddPod.
	DelPod(ctx context.Context, lab *testbed.Lab, pod *testbed.Pod) error
	// Facts are what a reader needs to judge the comparison: versions, rules installed, MTU in the pod.
	Facts(ctx context.Context, lab *testbed.Lab) map[string]string
	// AgentPID is the process id of the node's agent, 0 where there is none.
	AgentPID(node *testbed.Node) int
}
