package network

import (
	"context"
	"time"

	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// PolicyEnforcer is a network that enforces NetworkPolicies.
type PolicyEnforcer interface {
	Network
	// Present says which policies there are while it is measured.
	Present() policies.Presence
	// WithKubeconfig gives the network whose agents find an API server by a kubeconfig file. Up is called on that one. One that
	// does not watch an API server gives itself and is told by Enforce.
	WithKubeconfig(kubeconfig string) PolicyEnforcer
	// Enforce brings policies into force where Watches is false, and says how long the kernel took to take them.
	Enforce(ctx context.Context, lab *testbed.Lab, state *policies.State) (took time.Duration, err error)
	// Watches says whether the network watches the API server by itself.
	Watches() bool
}

// PolicyNetworks are those of the policy bench, the baseline first, in the order in which tables show them. ptp is there
// to divide ptp-iptables-policy by.
func PolicyNetworks() []Network {
	return []Network{
		Node{},
		BeelinePolicies{},
		BeelinePolicies{Presence: policies.Elsewhere},
		BeelinePolicies{Presence: policies.Allowing},
		BeelinePolicies{Presence: policies.AmongMany},
		BeelinePolicies{Presence: policies.OneBlock},
		BeelinePolicies{Presence: policies.ManyBlocks},
		BeelinePolicies{Flows: "all"},
		BeelinePolicies{Presence: policies.Allowing, Flows: "off"},
		PTP{},
		IptablesPolicies{},
	}
}

// BeelinePolicies is Beeline with NetworkPolicies of an API server.
type BeelinePolicies struct {
	Beeline
	Presence policies.Presence
	// Flows is the agents' --flows; empty is its default.
	Flows string
}

// Name is "beeline" and what is special: the policies that are there, or which flows are told of.
func (c BeelinePolicies) Name() string {
	name := c.Build.named("beeline") + map[policies.Presence]string{
		policies.Elsewhere: "-policy-elsewhere", policies.Allowing: "-policy", policies.AmongMany: "-policy-1000",
		policies.OneBlock: "-blocks-1", policies.ManyBlocks: "-blocks-100000",
	}[c.Presence]
	switch c.Flows {
	case "":
		return name
	case "all":
		return name + "-flows"
	}
	return name + "-flows-" + c.Flows
}

func (c BeelinePolicies) ofBuild(b Build) Network {
	c.Build = b
	return c
}

// Facts add what the first node's agent says of itself.
func (c BeelinePolicies) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	return c.facts(ctx, lab, c.ofBuild(Build{}).Name())
}

// Description is for the report.
func (c BeelinePolicies) Description() string { return c.Build.described(c.describe()) }

func (c BeelinePolicies) describe() string {
	text := map[policies.Presence]string{
		policies.None:       "Beeline without any NetworkPolicy",
		policies.Elsewhere:  "Beeline with NetworkPolicies that select other pods of both nodes",
		policies.Allowing:   "Beeline with NetworkPolicies that allow what is measured: ingress and egress, by selector and port, on both pods",
		policies.AmongMany:  "the same with 1,000 NetworkPolicies and 1,000 pods beside them, of which 100 run on the second node",
		policies.OneBlock:   "Beeline with a NetworkPolicy that allows what is measured by one ipBlock, ingress and egress, on both pods, whose addresses are no pods' to the other's node",
		policies.ManyBlocks: "the same with 100,000 ipBlocks, half of them single addresses, half prefixes of 24 to 30 bits side by side around the pods",
	}[c.Presence]
	switch c.Flows {
	case "":
		return text
	case "all":
		return text + ", telling of the flows of all pods (--flows=all)"
	}
	return text + ", telling of no flows (--flows=" + c.Flows + ")"
}

// Present says which policies there are.
func (c BeelinePolicies) Present() policies.Presence { return c.Presence }

// WithKubeconfig names the file that the agents find the API server by.
func (c BeelinePolicies) WithKubeconfig(kubeconfig string) PolicyEnforcer {
	c.kubeconfig = kubeconfig
	return c
}

// Up starts an agent on every node.
func (c BeelinePolicies) Up(ctx context.Context, lab *testbed.Lab) error {
	return c.agents().Up(ctx, lab)
}

// Restart ends the agent of a node, calls between while there is none, and starts it again; it returns when that is ready. Pods and their
// traffic go on.
func (c BeelinePolicies) Restart(ctx context.Context, lab *testbed.Lab, node *testbed.Node, between func() error) error {
	return c.agents().restart(ctx, lab, node, between)
}

// agents is Beeline as this network has it.
func (c BeelinePolicies) agents() Beeline {
	b := c.Beeline
	b.Routing = "ebpf"
	b.policy, b.flows = "ebpf", c.Flows
	b.logLevel = "debug" // has a line for each time that policies are written
	return b
}

// Enforce has nothing to do: the agents do it.
func (BeelinePolicies) Enforce(context.Context, *testbed.Lab, *policies.State) (time.Duration, error) {
	return 0, nil
}

// Watches is true: the agents watch the API server.
func (BeelinePolicies) Watches() bool { return true }
