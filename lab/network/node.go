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

// Unsupported is always empty: where a lab comes up, its nodes have a network.
func (Node) Unsupported() string { return "" }

// Up does nothing.
func (Node) Up(context.Context, *testbed.Lab) error { return nil }

// Plugin is nil: there are no pods.
func (Node) Plugin(*testbed.Lab, *testbed.Node) (*Plugin, error) { return nil, nil }

// Facts are those that every network has.
func (Node) Facts(_ context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	facts["netfilter"] = noRules
	return facts
}
