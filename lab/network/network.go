// Package network has the networks under test, one file each. A network comes up on a lab of its own and makes pods
// there; adding one is adding a file and a line in a list.
package network

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Network is one network under test. Its methods are called from one goroutine.
type Network interface {
	// Name is the one in tables and on the command line: "beeline", "node+netfilter", …
	Name() string
	// Description is one sentence for the report.
	Description() string
	// Unsupported is empty, or begins "not on this kernel: " or "not installed: " and says what is missing.
	Unsupported() string
	// Up makes the network of a fresh lab. What it starts ends with the lab. If the lab has an API server
	// (ServeObjects), the network's agents watch it.
	Up(ctx context.Context, lab *testbed.Lab) error
	// Plugin returns the CNI configuration of a node. It is nil for a network without pods, which measures the nodes
	// themselves.
	Plugin(lab *testbed.Lab, node *testbed.Node) (*plugin.Network, error)
	// Facts are what a reader needs to weigh the comparison: versions, rules installed, MTU in the pod.
	Facts(ctx context.Context, lab *testbed.Lab) map[string]string
}

// Proxy is a network that implements Services, with the objects of the lab's API server.
type Proxy interface {
	Network
	// StartProxy starts the Service proxy on every node where Up has not done so. It does not wait for Services to
	// work.
	StartProxy(ctx context.Context, lab *testbed.Lab) error
	// ProxyPID is the process id of a node's Service proxy, 0 where none runs.
	ProxyPID(node *testbed.Node) int
}

// PolicyEnforcer is a network that enforces NetworkPolicies.
type PolicyEnforcer interface {
	Network
	// Present says which policies exist while the network is measured.
	Present() policies.Presence
	// Watches reports whether the network's agents watch the API server themselves.
	Watches() bool
	// Enforce applies the policies of an API server where Watches is false. It returns how long the kernel took to take
	// them.
	Enforce(ctx context.Context, lab *testbed.Lab, server *apiserver.Server) (took time.Duration, err error)
}

// Closer is a network that leaves something which does not end with the lab. Down removes it, also after an incomplete Up.
type Closer interface {
	Network
	Down(ctx context.Context, lab *testbed.Lab) error
}

// Outsider is a network of others: see package script. Its agents may need the lab's API server, whatever is measured.
type Outsider interface {
	Network
	// AgentPID is the process id of a node's agent, 0 where none runs.
	AgentPID(node *testbed.Node) int
}

// NeedsAPIServer reports whether the agents of a network need an API server, whatever is measured: addresses of other nodes' pods
// are known from claims of IPPools.
func NeedsAPIServer(n Network) bool {
	_, outside := n.(Outsider)
	return outside || HasPools(n)
}

// AgentSocket is the agent's socket on a node, empty for a network without agents.
func AgentSocket(n Network, node *testbed.Node) string {
	if _, ok := n.(Beeline); !ok {
		return ""
	}
	return agentSocket(node)
}

// AgentPID is the process id of a node's agent, 0 where none runs.
func AgentPID(n Network, node *testbed.Node) int {
	switch n := n.(type) {
	case Beeline:
		return runningAgent(node)
	case Outsider:
		return n.AgentPID(node)
	}
	return 0
}

// AgentLog is the file to which the agent of a node writes its log.
func AgentLog(node *testbed.Node) string { return filepath.Join(node.StateDir, "agent.log") }

// All are the networks of the network suite, the baselines first, in the order of tables.
func All() []Network {
	return []Network{
		Node, nodeNetfilter, beelineEBPF, beelineKernel, ptp, bridge, macvlan, beelineMacvlan, beelineRouted, overlay, beelineVXLAN, beelineSameNode,
	}
}

// WithServices are the networks of the services suite, in the order of tables.
func WithServices() []Network {
	return []Network{
		Node, beelineSocket, beelineTC, beelineMacvlan, KubeProxy{Mode: "iptables"}, KubeProxy{Mode: "nftables"}, KubeProxy{Mode: "ipvs"},
	}
}

// WithNodePorts are the networks of the nodeport suite, in the order of tables.
func WithNodePorts() []Network {
	return []Network{
		Forwarding, beelineNodePort("xdp"), beelineNodePort("tc"),
		KubeProxy{Mode: "iptables"}, KubeProxy{Mode: "nftables"}, KubeProxy{Mode: "ipvs"},
	}
}

// WithEncryption are the networks of the encryption suite, in the order of tables: the nodes, Beeline without encryption
// and with each kind, and what the kernel has of these kinds.
func WithEncryption() []Network {
	return []Network{Node, beelineEBPF, beelineWireGuard, beelineIPsec, kernelWireGuard, kernelIPsec}
}

// WithPolicies are the networks of the policy suite, in the order of tables. ptp is there to divide ptp-iptables-policy
// by.
func WithPolicies() []Network {
	return []Network{
		Node,
		beelinePolicy(policies.None, ""),
		beelinePolicy(policies.Elsewhere, ""),
		beelinePolicy(policies.Allowing, ""),
		beelinePolicy(policies.AmongMany, ""),
		beelinePolicy(policies.OneBlock, ""),
		beelinePolicy(policies.ManyBlocks, ""),
		beelinePolicy(policies.None, "all"),
		beelinePolicy(policies.Allowing, "off"),
		ptp,
		IptablesPolicies,
	}
}

// Names are those of a list of networks.
func Names(list []Network) []string {
	var names []string
	for _, n := range list {
		names = append(names, n.Name())
	}
	return names
}

// ErrUnknown says that a list has no network of that name.
var ErrUnknown = errors.New("no network")

// Select returns the networks of these names, in the order of the list and each once; all of them for no names.
func Select(list []Network, names []string) ([]Network, error) {
	known := Names(list)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%w %q; there are: %s", ErrUnknown, name, strings.Join(known, ", "))
		}
	}
	if len(names) == 0 {
		return list, nil
	}
	return slices.DeleteFunc(list, func(n Network) bool { return !slices.Contains(names, n.Name()) }), nil
}

// Named returns the network of the network suite that has this name.
func Named(name string) (Network, error) {
	selected, err := Select(All(), []string{name})
	if err != nil {
		return nil, err
	}
	return selected[0], nil
}
