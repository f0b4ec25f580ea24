package network

import (
	"context"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Forwarding is nodes that forward by their routing tables and do nothing else: pods by the reference plugin ptp,
// without masquerade, without netfilter. What a NodePort costs is what it costs beyond this.
type Forwarding struct{}

// Name is "node": it is what the others of the NodePort bench are divided by.
func (Forwarding) Name() string { return "node" }

// Description is for the report.
func (Forwarding) Description() string {
	return "plain forwarding: the client sends to the pod's own address by way of the first node, whose stack routes it; no translation, no netfilter"
}

// Unsupported names a missing plugin.
func (Forwarding) Unsupported() string { return referenceMissing("ptp", "host-local") }

// Up makes the nodes forward.
func (Forwarding) Up(_ context.Context, lab *testbed.Lab) error { return routePods(lab) }

// Plugin is the reference plugin with the node's pod CIDRs.
func (Forwarding) Plugin(lab *testbed.Lab, node *testbed.Node) (*Plugin, error) {
	return referencePlugin("forwarding", map[string]any{
		"type": "ptp", "mtu": lab.MTU, "ipam": hostLocal(node, podRanges(node), true),
	})
}

// Facts are those every network has.
func (Forwarding) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	referenceFacts(ctx, lab, facts)
	facts["netfilter"] = noRules
	return facts
}
