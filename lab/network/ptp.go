package network

import (
	"context"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// PTP is the reference plugin ptp: a routed veth pair for each pod.
type PTP struct{}

// Name is "ptp".
func (PTP) Name() string { return "ptp" }

// Description is for the report.
func (PTP) Description() string {
	return "reference CNI plugin ptp: veth pairs routed by the kernel, static routes between nodes, masquerade, kube-proxy-like rules as in node+netfilter"
}

// Unsupported names a missing plugin or what the rules lack.
func (PTP) Unsupported() string {
	if missing := referenceMissing("ptp", "host-local"); missing != "" {
		return missing
	}
	return netfilterRulesUnsupported()
}

// Up makes routes and rules on the nodes.
func (PTP) Up(ctx context.Context, lab *testbed.Lab) error {
	if err := installNetfilterRules(ctx, lab); err != nil {
		return err
	}
	return routePods(lab)
}

// Plugin is the reference plugin with the node's pod CIDRs.
func (PTP) Plugin(lab *testbed.Lab, node *testbed.Node) (*Plugin, error) {
	return referencePlugin("ptp", map[string]any{
		"type": "ptp", "ipMasq": true, "mtu": lab.MTU,
		"ipam": hostLocal(node, podRanges(node), true),
	})
}

// Facts add the plugin's version and the rules.
func (PTP) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	referenceFacts(ctx, lab, facts)
	netfilterFacts(ctx, lab, facts)
	facts["masquerade"] = masqueradeFact
	return facts
}

// masqueradeFact is true of every network that uses ipMasq here.
const masqueradeFact = "ipMasq by the plugin; packets between pods keep their addresses"
