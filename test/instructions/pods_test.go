package instructions

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	labnetwork "github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// agents start and are ready. They stand still when all pods are there: what they do meanwhile would count, and the datapath needs none.
type agents struct {
	programs  netlab.Programs
	processes []*testbed.Process
}

func (n network) startAgents(t *testing.T, lab *testbed.Lab) agents {
	t.Helper()
	programs, err := netlab.Variant("../..", buildDir, netlab.Current)
	if err != nil {
		t.Fatal(err)
	}
	all := agents{programs: programs}
	manifests := filepath.Join(lab.Dir(), "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	nodes := lab.Nodes()
	for i, node := range nodes {
		objects := []any{netlab.NodeObject(node)}
		if n.pool != "" {
			objects = append(objects, labnetwork.PoolOfNode(node, n.pool, 100+10*i, 10))
		}
		writeManifest(t, manifests, node.Name+".yaml", objects)
	}
	for _, node := range nodes {
		agent, err := netlab.StartAgent(node, netlab.AgentCommand(programs, node, manifests, n.flags...))
		if err != nil {
			t.Fatal(err)
		}
		all.processes = append(all.processes, agent)
	}
	for _, node := range nodes {
		waitReady(t, node)
	}
	return all
}

func writeManifest(t *testing.T, dir, name string, objects []any) {
	t.Helper()
	var text []byte
	for _, object := range objects {
		each, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "---\n"...), each...)
	}
	if err := netlab.WriteManifest(dir, name, text); err != nil {
		t.Fatal(err)
	}
}

// beside is an address of the prefix's network, by its last byte.
func beside(network netip.Prefix, last int) netip.Addr {
	a := network.Masked().Addr().AsSlice()
	a[len(a)-1] = byte(last)
	addr, _ := netip.AddrFromSlice(a)
	return addr
}

func (a agents) stop(t *testing.T) {
	t.Helper()
	time.Sleep(time.Second) // until the agents have attached what they attach after ADD
	for _, agent := range a.processes {
		if err := agent.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
}

// attachPlugin calls the plugin as a container runtime does.
func (a agents) attachPlugin(t *testing.T, node *testbed.Node, pod *testbed.Pod) {
	t.Helper()
	network, err := netlab.NewNetwork(node, a.programs, "1.1.0", netlab.PluginConf(node))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := network.Add(t.Context(), pod, netlab.RuntimeConf(pod)); err != nil {
		t.Fatalf("ADD of %s: %v", pod.Name, err)
	}
}

// attachMacvlan gives the pod a macvlan device of the node's uplink, as the reference plugin does.
func attachMacvlan(t *testing.T, node *testbed.Node, pod *testbed.Pod) {
	t.Helper()
	index := slices.Index(podNames, pod.Name)
	address := beside(node.Addresses[0], 100+index)
	device := fmt.Sprintf("pod%d", index)
	commands := [][]string{
		{"ip", "link", "add", "link", testbed.Uplink, "name", device, "type", "macvlan", "mode", "bridge"},
		{"ip", "link", "set", device, "netns", pod.Path, "name", "eth0"},
		{"ip", "addr", "add", fmt.Sprintf("%s/%d", address, node.Addresses[0].Bits()), "dev", "eth0"},
		{"ip", "link", "set", "eth0", "up"},
	}
	for i, command := range commands {
		in := node.Netns
		if i > 1 {
			in = pod.Netns
		}
		if err := in.Run(exec.CommandContext(t.Context(), command[0], command[1:]...)); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
	pod.Addresses = []netip.Addr{address}
}

var podNames = []string{"client", "near", "far"}

// pods are two of the first node and one of the second.
func (n network) pods(t *testing.T, lab *testbed.Lab) []path {
	t.Helper()
	attach := n.attach
	if n.agents {
		agents := n.startAgents(t, lab)
		defer agents.stop(t)
		attach = agents.attachPlugin
	}
	nodes := lab.Nodes()
	var pods []*testbed.Pod
	for i, name := range podNames {
		node := nodes[i/2]
		pod, err := lab.NewPodNetns(t.Context(), node, name)
		if err != nil {
			t.Fatal(err)
		}
		attach(t, node, pod)
		pods = append(pods, pod)
	}
	client, near, far := pods[0], pods[1], pods[2]
	return []path{
		{"remote", client.Netns, far.Netns, far.Addresses[0]},
		{"local", client.Netns, near.Netns, near.Addresses[0]},
	}
}

func waitReady(t *testing.T, node *testbed.Node) {
	t.Helper()
	var err error
	for range 600 {
		if err = netlab.API(node).Ready(t.Context()); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	log, _ := os.ReadFile(netlab.LogFile(node))
	t.Fatalf("agent of %s is not ready: %v\n%s", node.Name, err, log)
}
