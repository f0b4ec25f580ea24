package network

import (
	"context"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Node is the baseline: processes on the nodes themselves, nothing between them but the wire.
type Node struct{}

// Name is "node".
func (Node) Name() string { return "node" }

// Description is for the report.
func (Node) Description() string {
	return "the nodes' own network, no pods and no netfilter rules: what the machine can do"
}

// Unsupported is always empty: where a lab can be made, its nodes have a network.
func (Node) Unsupported() string { return "" }

// Up has nothing to do.
func (Node) Up(context.Context, *testbed.Lab) error { return nil }

// AddPod gives the node itself.
func (Node) AddPod(_ context.Context, lab *testbed.Lab, node *testbed.Node, name string) (*testbed.Pod, error) {
	return nodeAsPod(lab, node, name), nil
}

// DelPod has nothing to do.
func (Node) DelPod(context.Context, *testbed.Lab, *testbed.Pod) error { return nil }

// Facts are those every network has.
func (Node) Facts(_ context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	facts["netfilter"] = noRules
	return facts
}

// AgentPID is 0: there is no agent.
func (Node) AgentPID(*testbed.Node) int { return 0 }

// nodeAsPod is the node where a network has no pods. It is not recorded in the lab.
func nodeAsPod(lab *testbed.Lab, node *testbed.Node, name string) *testbed.Pod {
	pod := &testbed.Pod{Name: name, Node: node.Name, Netns: node.Netns, MTU: lab.MTU}
	for _, a := range node.Addresses {
		pod.Addresses = append(pod.Addresses, a.Addr())
	}
	return pod
}
