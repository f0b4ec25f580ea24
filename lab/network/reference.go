package network

import (
	"context"
	"maps"
	"net/netip"
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Reference is a network without agents: reference CNI plugins on each node, or the nodes themselves.
type Reference struct {
	name, description string
	// plugins are those that have to be installed; none: there are no pods, and the nodes themselves are measured.
	plugins []string
	// needs are the parts of the kernel that it has to have.
	needs []requirement
	// encryption is that of packets between pods of different nodes.
	encryption Encryption
	// rules says that the nodes have conntrack and kube-proxy's rules.
	rules bool
	// up makes what else the nodes have; nil: nothing.
	up func(context.Context, *testbed.Lab) error
	// plugin is the entry of the CNI configuration.
	plugin func(*testbed.Lab, *testbed.Node) map[string]any
	// facts are those beyond what plugins and rules have; nil: none.
	facts func(*testbed.Lab) map[string]string
}

var (
	// Node is the baseline: processes on the nodes themselves, nothing between them but the wire.
	Node = &Reference{
		name:        "node",
		description: "the nodes' own network, no pods and no netfilter rules: what the machine can do",
	}
	// nodeNetfilter is the second baseline: processes on nodes whose packets pass conntrack and kube-proxy's rules. The
	// published studies call it node-to-node.
	nodeNetfilter = &Reference{
		name:        "node+netfilter",
		description: "the nodes' own network with conntrack and the rules kube-proxy installs for 50 Services, as on a Kubernetes node",
		rules:       true,
	}
	// bridge is the reference plugin bridge: veth pairs on a bridge of the node, which the plugin makes with the first pod.
	bridge = &Reference{
		name:        "bridge",
		description: "reference CNI plugin bridge: veth pairs on a bridge, static routes between nodes, masquerade, kube-proxy-like rules as in node+netfilter",
		plugins:     []string{"bridge", "host-local"}, needs: []requirement{bridgeDevices}, rules: true, up: routePods,
		plugin: func(lab *testbed.Lab, node *testbed.Node) map[string]any { return bridgePlugin(node, lab.MTU) },
		facts:  bridgeFacts,
	}
	// ptp is the reference plugin ptp: a routed veth pair for each pod.
	ptp = &Reference{
		name:        "ptp",
		description: "reference CNI plugin ptp: veth pairs routed by the kernel, static routes between nodes, masquerade, kube-proxy-like rules as in node+netfilter",
		plugins:     []string{"ptp", "host-local"}, rules: true, up: routePods,
		plugin: func(lab *testbed.Lab, node *testbed.Node) map[string]any {
			return map[string]any{"type": "ptp", "ipMasq": true, "mtu": lab.MTU, "ipam": hostLocal(node, podRanges(node), true)}
		},
	}
	// macvlan is the reference plugin macvlan: pods share the node's device and bypass the node's stack. The wire is the
	// pods' network.
	macvlan = &Reference{
		name:        "macvlan",
		description: "reference CNI plugin macvlan in bridge mode on the uplink: pods bypass the node's stack and its netfilter, and cannot reach their own node",
		plugins:     []string{"macvlan", "host-local"}, needs: []requirement{macvlanDevices},
		plugin: func(lab *testbed.Lab, node *testbed.Node) map[string]any {
			return map[string]any{
				"type": "macvlan", "master": testbed.Uplink, "mode": "bridge", "mtu": lab.MTU, "ipam": hostLocal(node, sharedRanges(node), false),
			}
		},
	}
	// Forwarding is nodes that forward by their routing tables and do nothing else: pods by the reference plugin ptp,
	// without masquerade, without netfilter. What a NodePort costs is what it costs beyond this: its name is that of what
	// others are divided by.
	Forwarding = &Reference{
		name:        "node",
		description: "plain forwarding: the client sends to the pod's own address by way of the first node, whose stack routes it; no translation, no netfilter",
		plugins:     []string{"ptp", "host-local"}, up: routePods,
		plugin: func(lab *testbed.Lab, node *testbed.Node) map[string]any { return ptpPlugin(node, lab.MTU) },
	}
)

// Name is the one in tables.
func (r *Reference) Name() string { return r.name }

// Description is for the report.
func (r *Reference) Description() string { return r.description }

// Unsupported names a missing plugin, or what the kernel lacks.
func (r *Reference) Unsupported() string {
	if missing := referenceMissing(r.plugins...); missing != "" {
		return missing
	}
	if missing := lacks(r.needs...); missing != "" || !r.rules {
		return missing
	}
	return lacks(kubeProxyRules)
}

// Up makes rules and routes on the nodes.
func (r *Reference) Up(ctx context.Context, lab *testbed.Lab) error {
	if r.rules {
		if err := installNetfilterRules(ctx, lab); err != nil {
			return err
		}
	}
	if r.up == nil {
		return nil
	}
	return r.up(ctx, lab)
}

// Plugin is the reference plugin with the node's pod CIDRs; nil if there are no pods.
func (r *Reference) Plugin(lab *testbed.Lab, node *testbed.Node) (*plugin.Network, error) {
	if r.plugin == nil {
		return nil, nil
	}
	return referencePlugin(node, r.name, r.plugin(lab, node))
}

// Facts add the plugins' version and the rules.
func (r *Reference) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	facts["netfilter"] = noRules
	if len(r.plugins) > 0 {
		referenceFacts(ctx, lab, facts)
	}
	if r.rules {
		netfilterFacts(ctx, lab, facts)
	}
	if r.rules && len(r.plugins) > 0 {
		facts["masquerade"] = "ipMasq by the plugin; packets between pods keep their addresses"
	}
	if r.facts != nil {
		maps.Copy(facts, r.facts(lab))
	}
	return facts
}

// ptpPlugin is the plugin ptp without masquerade.
func ptpPlugin(node *testbed.Node, mtu int) map[string]any {
	return map[string]any{"type": "ptp", "mtu": mtu, "ipam": hostLocal(node, podRanges(node), true)}
}

func bridgePlugin(node *testbed.Node, mtu int) map[string]any {
	return map[string]any{
		"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "mtu": mtu,
		"ipam": hostLocal(node, podRanges(node), true),
	}
}

// bridgeFacts say whether frames between pods of one node pass netfilter, which Kubernetes wants.
func bridgeFacts(lab *testbed.Lab) map[string]string {
	value, err := lab.Node(0).ReadSysctl("net/bridge/bridge-nf-call-iptables")
	if err != nil {
		return nil
	}
	return map[string]string{"bridge-nf-call-iptables": value}
}

// hostLocal is the IPAM part of a reference plugin's configuration on one node.
func hostLocal(node *testbed.Node, ranges [][]map[string]any, routes bool) map[string]any {
	ipam := map[string]any{"type": "host-local", "dataDir": filepath.Join(node.StateDir, "host-local"), "ranges": ranges}
	if routes {
		defaults := []map[string]any{{"dst": "0.0.0.0/0"}}
		if len(ranges) > 1 {
			defaults = append(defaults, map[string]any{"dst": "::/0"})
		}
		ipam["routes"] = defaults
	}
	return ipam
}

// podRanges are the node's pod CIDRs as host-local takes them.
func podRanges(node *testbed.Node) (ranges [][]map[string]any) {
	for _, cidr := range node.PodCIDRs {
		ranges = append(ranges, []map[string]any{{"subnet": cidr.String()}})
	}
	return ranges
}

// sharedRanges are parts of one subnet for all, so that pods of all nodes are neighbours; each node hands out its own.
func sharedRanges(node *testbed.Node) (ranges [][]map[string]any) {
	shared := []netip.Prefix{testbed.PodNetworkIPv4, testbed.PodNetworkIPv6}
	for i, cidr := range node.PodCIDRs {
		first := cidr.Addr().Next().Next()
		last := first
		for range 200 {
			last = last.Next()
		}
		ranges = append(ranges, []map[string]any{{"subnet": shared[i].String(), "rangeStart": first.String(), "rangeEnd": last.String()}})
	}
	return ranges
}
