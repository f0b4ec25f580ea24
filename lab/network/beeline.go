package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Beeline is this project, through what a user has: the two binaries, a CNI configuration and manifests.
type Beeline struct {
	// Routing is the agent's --routing: "ebpf" or "kernel".
	Routing string
	// Tunnel is the agent's --tunnel; empty is its default.
	Tunnel string
	// Build says whose binaries run.
	Build Build

	// kubeconfig names the API server's file; empty is manifests of the nodes and nothing else.
	kubeconfig string
	// services is the agent's --services; empty is its default. acceleration is, beside it, its --nodeport-acceleration.
	services, acceleration string
	// policy and flows are the agent's --policy and --flows; empty is their default.
	policy, flows string
	// logLevel is the agent's --log-level; empty is its default.
	logLevel string
	// cgroup gives the one of a node whose sockets find Services; nil is the node's own.
	cgroup func(*testbed.Node) string
}

// beelineVersion is the CNI version of the configuration that users get.
const beelineVersion = "1.1.0"

// Name is "beeline", or "beeline-kernel" with kernel routing, or "beeline-vxlan" with tunnels to all nodes; another build has its name in
// the place of "beeline".
func (c Beeline) Name() string {
	switch {
	case c.Routing == "kernel":
		return c.Build.named("beeline-kernel")
	case c.Tunnel == "vxlan":
		return c.Build.named("beeline-vxlan")
	}
	return c.Build.named("beeline")
}

func (c Beeline) ofBuild(b Build) Network {
	c.Build = b
	return c
}

// Description is for the report.
func (c Beeline) Description() string {
	text := "Beeline with eBPF routing: packets go between pods and wire past the node's stack"
	switch {
	case c.Routing == "kernel":
		text = "Beeline with --routing=kernel: the node's stack forwards between pods and wire"
	case c.Tunnel == "vxlan":
		text = "Beeline with --tunnel=vxlan: packets for the other node go past the node's stack into VXLAN; MTU 50 less than the wire's"
	}
	return c.Build.described(text)
}

// Unsupported says which binary is missing, or that tunnels are.
func (c Beeline) Unsupported() string {
	_, err := c.Build.binaries()
	if err != nil {
		return "not installed: " + err.Error()
	}
	if c.Tunnel == "vxlan" {
		return vxlanUnsupported()
	}
	return ""
}

// Up writes a manifest of the nodes, if there is no API server, and starts an agent on each; it returns when all are ready.
func (c Beeline) Up(ctx context.Context, lab *testbed.Lab) error {
	if c.kubeconfig == "" {
		if err := writeNodeManifests(manifestsOf(lab), lab); err != nil {
			return err
		}
	}
	var agents []*agent
	for _, node := range lab.Nodes() {
		a, err := c.start(lab, node)
		if err != nil {
			return fmt.Errorf("start agent of %s: %w", node.Name, err)
		}
		agents = append(agents, a)
	}
	for _, a := range agents {
		if err := a.waitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// manifestsOf is where the manifests of a lab are.
func manifestsOf(lab *testbed.Lab) string { return filepath.Join(lab.Dir(), "manifests") }

// start starts the agent of a node.
func (c Beeline) start(lab *testbed.Lab, node *testbed.Node) (*agent, error) {
	bin, err := c.Build.binaries()
	if err != nil {
		return nil, err
	}
	source := []string{"--kubeconfig", c.kubeconfig}
	if c.kubeconfig == "" {
		source = []string{"--manifests", manifestsOf(lab)}
	}
	return startAgent(bin.agent, slices.Concat(source, c.flags(node)), node)
}

// restart ends the agent of a node, calls between, and starts it again; it returns when that is ready.
func (c Beeline) restart(ctx context.Context, lab *testbed.Lab, node *testbed.Node, between func() error) error {
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
	return a.waitReady(ctx)
}

// flags are the agent's that make it this network.
func (c Beeline) flags(node *testbed.Node) []string {
	flags := []string{"--routing", c.Routing}
	cgroup := node.Cgroup // by default it would be all processes of the machine
	if c.cgroup != nil {
		cgroup = c.cgroup(node)
	}
	flags = append(flags, "--cgroup", cgroup)
	if c.services != "" {
		flags = append(flags, "--services", c.services)
	}
	if c.acceleration != "" {
		flags = append(flags, "--nodeport-acceleration", c.acceleration)
	}
	if c.Tunnel != "" {
		flags = append(flags, "--tunnel", c.Tunnel)
	}
	if c.policy != "" {
		flags = append(flags, "--policy", c.policy)
	}
	if c.flows != "" {
		flags = append(flags, "--flows", c.flows)
	}
	if c.logLevel != "" {
		flags = append(flags, "--log-level", c.logLevel)
	}
	return flags
}

func (c Beeline) network(node *testbed.Node) (pluginConfig, error) {
	bin, err := c.Build.binaries()
	if err != nil {
		return pluginConfig{}, err
	}
	return pluginConfig{dirs: []string{bin.plugins}, conf: confList(beelineVersion, "beeline", map[string]any{
		"type": "beeline-cni", "agentSocket": agentSocket(node),
	})}, nil
}

// AddPod calls the plugin beeline-cni.
func (c Beeline) AddPod(ctx context.Context, lab *testbed.Lab, node *testbed.Node, name string) (*testbed.Pod, error) {
	w, err := c.network(node)
	if err != nil {
		return nil, err
	}
	return w.addPod(ctx, lab, node, name)
}

// DelPod calls the plugin beeline-cni.
func (c Beeline) DelPod(ctx context.Context, lab *testbed.Lab, pod *testbed.Pod) error {
	node, err := nodeOf(lab, pod)
	if err != nil {
		return err
	}
	w, err := c.network(node)
	if err != nil {
		return err
	}
	return w.delPod(ctx, lab, pod)
}

// Facts add what the first node's agent says of itself.
func (c Beeline) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	return c.facts(ctx, lab, c.ofBuild(Build{}).Name())
}

// facts are those of a network that is called name in the build that runs.
func (c Beeline) facts(ctx context.Context, lab *testbed.Lab, name string) map[string]string {
	facts := commonFacts(lab)
	c.Build.isAnother(facts, name)
	facts["netfilter"] = noRules
	facts["masquerade"] = "towards the world, by the datapath"
	status, err := agentapi.NewClient(agentSocket(lab.Node(0))).Status(ctx)
	if err != nil {
		facts["agent"] = "does not answer: " + err.Error()
		return facts
	}
	facts["agent"] = status.Version
	for _, choice := range status.Choices {
		facts[choice.Name] = choice.Chosen
	}
	return facts
}

// agentSocket is where the agent of a node answers.
func (Beeline) agentSocket(node *testbed.Node) string { return agentSocket(node) }

// AgentPID is the agent's, if it still runs on the node.
func (Beeline) AgentPID(node *testbed.Node) int { return runningAgent(node) }

// binaries are the programs of this project that a node needs.
type binaries struct {
	agent string
	// plugins is the directory that holds beeline-cni.
	plugins string
}

// findBinaries looks in the directory $BEELINE_BIN, or in that of the running program.
func findBinaries() (binaries, error) {
	dir := os.Getenv("BEELINE_BIN")
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return binaries{}, fmt.Errorf("find own program: %w", err)
		}
		dir = filepath.Dir(self)
	}
	bin, err := binariesIn(dir)
	if err != nil {
		return bin, fmt.Errorf("%w (make build makes it; BEELINE_BIN may name another directory)", err)
	}
	return bin, nil
}

// binariesIn finds the programs in a directory. An error begins with the path of what is missing.
func binariesIn(dir string) (binaries, error) {
	bin := binaries{agent: filepath.Join(dir, "beeline-agent"), plugins: dir}
	for _, file := range []string{bin.agent, filepath.Join(dir, "beeline-cni")} {
		if _, err := os.Stat(file); err != nil {
			return binaries{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	return bin, nil
}

// Program is the running program, beeline-lab, whose command connect runs in pods.
func Program() (string, error) { return os.Executable() }
