package network

import (
	"context"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// NodeNetfilter is the second baseline: processes on nodes whose packets pass conntrack and kube-proxy's rules. The
// published studies call it node-to-node.
type NodeNetfilter struct{ Node }

// Name is "node+netfilter".
func (NodeNetfilter) Name() string { return "node+netfilter" }

// Description is for the report.
func (NodeNetfilter) Description() string {
	return "the nodes' own network with conntrack and the rules kube-proxy installs for 50 Services, as on a Kubernetes node"
}

// Unsupported probes the rules in a namespace of their own.
func (NodeNetfilter) Unsupported() string { return netfilterRulesUnsupported() }

// Up installs the rules on every node.
func (NodeNetfilter) Up(ctx context.Context, lab *testbed.Lab) error {
	return installNetfilterRules(ctx, lab)
}

// Facts add the rules.
func (NodeNetfilter) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	netfilterFacts(ctx, lab, facts)
	return facts
}
