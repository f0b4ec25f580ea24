package network

import (
	"context"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Bridge is the reference plugin bridge: veth pairs on a bridge of the node.
type Bridge struct{}

// Name is "bridge".
func (Bridge) Name() string { return "bridge" }

// Description is for the report.
func (Bridge) Description() string {
	return "reference CNI plugin bridge: veth pairs on a bridge, static routes between nodes, masquerade, kube-proxy-like rules as in node+netfilter"
}

// Unsupported names a missing plugin or kernel part.
func (Bridge) Unsupported() string {
	if missing := referenceMissing("bridge", "host-local"); missing != "" {
		return missing
	}
	if missing := bridgeUnsupported(); missing != "" {
		return missing
	}
	return netfilterRulesUnsupported()
}

// Up makes routes and rules on the nodes; the plugin makes the bridge with the first pod.
func (Bridge) Up(ctx context.Context, lab *testbed.Lab) error {
	if err := installNetfilterRules(ctx, lab); err != nil {
		return err
	}
	return routePods(lab)
}

// Facts add the plugin's version and the rules.
func (Bridge) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	referenceFacts(ctx, lab, facts)
	netfilterFacts(ctx, lab, facts)
	bridgeFacts(lab, facts)
	facts["masquerade"] = masqueradeFact
	return facts
}

// Plugin is the reference plugin with the node's pod CIDRs.
func (Bridge) Plugin(lab *testbed.Lab, node *testbed.Node) (*Plugin, error) {
	return bridgePlugin("bridge", node, lab.MTU)
}

func bridgePlugin(name string, node *testbed.Node, mtu int) (*Plugin, error) {
	return referencePlugin(name, map[string]any{
		"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "mtu": mtu,
		"ipam": hostLocal(node, podRanges(node), true),
	})
}

// bridgeFacts say whether frames between pods of one node pass netfilter, which Kubernetes wants.
func bridgeFacts(lab *testbed.Lab, facts map[string]string) {
	const name = "net/bridge/bridge-nf-call-iptables"
	if value, err := lab.Node(0).Place().ReadSysctl(name); err == nil {
		facts["bridge-nf-call-iptables"] = value
	}
}
