package network

import (
	"context"
	"net/netip"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Macvlan is the reference plugin macvlan: pods share the node's device and bypass the node's stack.
type Macvlan struct{}

// Name is "macvlan".
func (Macvlan) Name() string { return "macvlan" }

// Description is for the report.
func (Macvlan) Description() string {
	return "reference CNI plugin macvlan in bridge mode on the uplink: pods bypass the node's stack and its netfilter, and cannot reach their own node"
}

// Unsupported names a missing plugin or kernel part.
func (Macvlan) Unsupported() string {
	if missing := referenceMissing("macvlan", "host-local"); missing != "" {
		return missing
	}
	return macvlanUnsupported()
}

// Up has nothing to do: the wire is the pods' network.
func (Macvlan) Up(context.Context, *testbed.Lab) error { return nil }

// Plugin is the reference plugin with the node's pod CIDRs.
func (Macvlan) Plugin(lab *testbed.Lab, node *testbed.Node) (*Plugin, error) {
	shared := []netip.Prefix{testbed.PodNetworkIPv4, testbed.PodNetworkIPv6}
	var ranges [][]map[string]any
	for i, cidr := range node.PodCIDRs {
		// One subnet for all, so that pods of all nodes are neighbours; each node hands out its own part.
		first := cidr.Addr().Next().Next()
		ranges = append(ranges, []map[string]any{{
			"subnet": shared[i].String(), "rangeStart": first.String(), "rangeEnd": plus(first, 200).String(),
		}})
	}
	return referencePlugin("macvlan", map[string]any{
		"type": "macvlan", "master": testbed.Uplink, "mode": "bridge", "mtu": lab.MTU,
		"ipam": hostLocal(node, ranges, false),
	})
}

// Facts add the plugin's version.
func (Macvlan) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	referenceFacts(ctx, lab, facts)
	facts["netfilter"] = noRules
	return facts
}

func plus(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}
	return a
}
