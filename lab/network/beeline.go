package network

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Beeline is this project, through what a user has: the binaries, a CNI configuration and manifests or an API server.
type Beeline struct {
	// Build says whose binaries run.
	Build Build
	// name is the network's in the build that runs, description is for the report.
	name, description string
	// flags are the agent's that make this network.
	flags []string
	// withoutSockets keeps the socket programs away from all processes, as if each ran in a virtual machine.
	withoutSockets bool
	// presence says which policies exist in the policy suite.
	presence policies.Presence
	// annotations are those of all pods, in labs without an API server.
	annotations map[string]string
	// poolDevice gives all pods addresses of the wire, from IPPools with this kind of device: Pools, or manifests in labs
	// without an API server.
	poolDevice string
	// encryption is that of packets between pods of different nodes.
	encryption Encryption
}

// The networks of this project in the suites network and services.
var (
	beelineEBPF = Beeline{
		name: "beeline", flags: []string{"--routing", "ebpf"},
		description: "Beeline with eBPF routing: packets go between pods and wire past the node's stack",
	}
	beelineKernel = Beeline{
		name: "beeline-kernel", flags: []string{"--routing", "kernel"},
		description: "Beeline with --routing=kernel: the node's stack forwards between pods and wire",
	}
	beelineVXLAN = Beeline{
		name: "beeline-vxlan", flags: []string{"--routing", "ebpf", "--tunnel", "vxlan"},
		description: "Beeline with --tunnel=vxlan: packets for the other node go past the node's stack into VXLAN; MTU 50 less than the wire's",
	}
	beelineSameNode = Beeline{
		name: "beeline-same-node", flags: []string{"--routing", "ebpf", "--same-node", "sockets"},
		annotations: map[string]string{"networking.beeline.dev/same-node": "sockets"},
		description: "Beeline with --same-node=sockets, which all pods opted in to: TCP data of one node's pods goes from socket to socket (experimental)",
	}
	beelineMacvlan = Beeline{
		name: "beeline-macvlan", flags: []string{"--routing", "ebpf"}, poolDevice: "macvlan",
		description: "Beeline with an IPPool of macvlan devices: pods have addresses and MACs on the wire; Services and policies are applied at the uplink",
	}
	beelineRouted = Beeline{
		name: "beeline-routed", flags: []string{"--routing", "ebpf"}, poolDevice: "veth",
		description: "Beeline with an IPPool of veth devices, the routed underlay: pods have addresses of the wire, for which their nodes answer",
	}
	beelineSocket = Beeline{
		name: "beeline-socket", flags: []string{"--routing", "ebpf", "--services", "ebpf"},
		description: "Beeline with --services=ebpf, as it is by default: addresses of Services are translated when a socket connects",
	}
	beelineTC = Beeline{
		name: "beeline-tc", flags: []string{"--routing", "ebpf", "--services", "ebpf"}, withoutSockets: true,
		description: "Beeline with --services=ebpf, but out of reach of the pods' sockets: addresses of Services are translated packet by packet, at tc",
	}
)

// beelineNodePort is Beeline with --nodeport-acceleration "tc" or "xdp".
func beelineNodePort(acceleration string) Beeline {
	return Beeline{
		name: "beeline-" + acceleration, flags: []string{"--routing", "ebpf", "--services", "ebpf", "--nodeport-acceleration", acceleration},
		description: fmt.Sprintf("Beeline with --services=ebpf --nodeport-acceleration=%s: connections from outside are translated by Maglev and SNAT at %[1]s", acceleration),
	}
}

// beelinePolicy is Beeline with NetworkPolicies of an API server; flows is the agents' --flows, empty for the default.
func beelinePolicy(presence policies.Presence, flows string) Beeline {
	b := Beeline{presence: presence}
	b.name = "beeline" + map[policies.Presence]string{
		policies.Elsewhere: "-policy-elsewhere", policies.Allowing: "-policy", policies.AmongMany: "-policy-1000",
		policies.OneBlock: "-blocks-1", policies.ManyBlocks: "-blocks-100000",
	}[presence]
	b.description = map[policies.Presence]string{
		policies.None:       "Beeline without any NetworkPolicy",
		policies.Elsewhere:  "Beeline with NetworkPolicies that select other pods of both nodes",
		policies.Allowing:   "Beeline with NetworkPolicies that allow what is measured: ingress and egress, by selector and port, on both pods",
		policies.AmongMany:  "the same with 1,000 NetworkPolicies and 1,000 pods beside them, of which 100 run on the second node",
		policies.OneBlock:   "Beeline with a NetworkPolicy that allows what is measured by one ipBlock, ingress and egress, on both pods; each node takes the other's pod for an external address",
		policies.ManyBlocks: "the same with 100,000 ipBlocks, half of them single addresses, half prefixes of 24 to 30 bits side by side around the pods",
	}[presence]
	// The debug log has a line for each time that the agent writes policies.
	b.flags = []string{"--routing", "ebpf", "--policy", "ebpf", "--log-level", "debug"}
	switch flows {
	case "all":
		b.name += "-flows"
		b.description += ", reporting the flows of all pods (--flows=all)"
	case "off":
		b.name += "-flows-off"
		b.description += ", reporting no flows (--flows=off)"
	}
	if flows != "" {
		b.flags = append(b.flags, "--flows", flows)
	}
	return b
}

// beelineVersion is the CNI version of the configuration that users get.
const beelineVersion = "1.1.0"

// Name is the network's; another build has its name in the place of "beeline".
func (c Beeline) Name() string { return c.Build.named(c.name) }

// Description is for the report.
func (c Beeline) Description() string { return c.Build.described(c.description) }

// Unsupported names a missing binary, or says which devices or states the kernel lacks.
func (c Beeline) Unsupported() string {
	if _, err := c.Build.programs(); err != nil {
		return "not installed: " + err.Error()
	}
	switch {
	case slices.Contains(c.flags, "--tunnel"):
		return lacks(vxlanDevices)
	case c.poolDevice == "macvlan":
		return lacks(macvlanDevices)
	case c.encryption == WireGuard:
		return lacks(wireGuardDevices)
	case c.encryption == IPsec:
		return lacks(ipsecStates, ipsecDevices)
	}
	return ""
}

// Up writes a manifest of the nodes, if there is no API server, and starts an agent on each node. It returns when all
// are ready.
func (c Beeline) Up(ctx context.Context, lab *testbed.Lab) error {
	if !hasAPIServer(lab) {
		if err := writeNodeManifests(manifestsOf(lab), lab, nil); err != nil {
			return err
		}
		if c.poolDevice != "" {
			if err := writePools(lab, c.poolDevice); err != nil {
				return err
			}
		}
	}
	if c.encryption == IPsec {
		if err := writeIPsecKeys(lab); err != nil {
			return fmt.Errorf("write keys of IPsec: %w", err)
		}
	}
	var agents []*testbed.Process
	for _, node := range lab.Nodes() {
		if c.withoutSockets {
			if err := os.MkdirAll(emptyCgroup(node), 0o755); err != nil {
				return fmt.Errorf("make cgroup on %s: %w", node.Name, err)
			}
		}
		a, err := c.start(lab, node)
		if err != nil {
			return fmt.Errorf("start agent of %s: %w", node.Name, err)
		}
		agents = append(agents, a)
	}
	for i, a := range agents {
		if err := waitReady(ctx, lab.Node(i), a); err != nil {
			return err
		}
	}
	if c.encryption != "" {
		return c.introduce(ctx, lab)
	}
	return nil
}

// manifestsOf is the directory of a lab's manifests.
func manifestsOf(lab *testbed.Lab) string { return filepath.Join(lab.Dir(), "manifests") }

// emptyCgroup is a cgroup of a node without processes.
func emptyCgroup(node *testbed.Node) string { return filepath.Join(node.Cgroup, "empty") }

// start starts the agent of a node.
func (c Beeline) start(lab *testbed.Lab, node *testbed.Node) (*testbed.Process, error) {
	dir, err := c.Build.programs()
	if err != nil {
		return nil, err
	}
	source := []string{"--manifests", manifestsOf(lab)}
	if hasAPIServer(lab) {
		source = []string{"--kubeconfig", Kubeconfig(lab)}
	}
	cgroup := node.Cgroup // the default is that of all processes of the machine
	if c.withoutSockets {
		cgroup = emptyCgroup(node)
	}
	args := slices.Concat([]string{
		"run", "--node-name", node.Name, "--socket", agentSocket(node), "--state-dir", filepath.Join(node.StateDir, "agent"),
		"--bpffs", node.BPFFS, "--cgroup", cgroup, "--metrics-address", "",
	}, source, c.encryptionFlags(lab, node), c.flags)
	return start(node, exec.Command(filepath.Join(dir, agentProgram), args...), AgentLog(node), agentPIDFile(node))
}

// Restart ends the agent of a node, calls between, and starts the agent again. It returns when that is ready. Pods and
// their traffic go on.
func (c Beeline) Restart(ctx context.Context, lab *testbed.Lab, node *testbed.Node, between func() error) error {
	if err := stopAgent(ctx, node); err != nil {
		return fmt.Errorf("stop agent of %s: %w", node.Name, err)
	}
	if err := between(); err != nil {
		return err
	}
	a, err := c.start(lab, node)
	if err != nil {
		return fmt.Errorf("start agent of %s: %w", node.Name, err)
	}
	return waitReady(ctx, node, a)
}

// Plugin is beeline-cni with the node's agent.
func (c Beeline) Plugin(_ *testbed.Lab, node *testbed.Node) (*plugin.Network, error) {
	dir, err := c.Build.programs()
	if err != nil {
		return nil, err
	}
	conf := map[string]any{"type": pluginProgram, "agentSocket": agentSocket(node)}
	cni, err := plugin.NewNetwork(node, []string{dir}, beelineVersion, "beeline", conf)
	return &cni, err
}

// Facts add what the first node's agent reports.
func (c Beeline) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	if c.Build.Name != "" {
		facts[result.OtherBuildOf] = c.name
	}
	facts["netfilter"] = noRules
	facts["masquerade"] = "towards external addresses, by the datapath"
	status, err := agentapi.NewClient(agentSocket(lab.Node(0))).Status(ctx)
	if err != nil {
		facts["agent"] = "does not answer: " + err.Error()
		return facts
	}
	facts["agent"] = status.Version
	for _, choice := range status.Choices {
		facts[choice.Name] = choice.Selected
	}
	return facts
}

// StartProxy does nothing: the agents handle Services since Up.
func (Beeline) StartProxy(context.Context, *testbed.Lab) error { return nil }

// ProxyPID is the agent's.
func (Beeline) ProxyPID(node *testbed.Node) int { return runningAgent(node) }

// NodeSockets reports whether connections of the node's own sockets reach Services.
func (c Beeline) NodeSockets() bool { return !c.withoutSockets }

// Present says which policies exist.
func (c Beeline) Present() policies.Presence { return c.presence }

// Watches is true: the agents watch the API server.
func (Beeline) Watches() bool { return true }

// Enforce does nothing: the agents do it.
func (Beeline) Enforce(context.Context, *testbed.Lab, *apiserver.Server) (time.Duration, error) {
	return 0, nil
}
