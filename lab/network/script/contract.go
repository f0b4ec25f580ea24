package script

import (
	"encoding/json"
	"net/netip"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// The programs of a directory. All but programUp may be missing. They run in the network namespace and cgroup of a node, as root,
// with an Input on standard input. What they start and leave running ends with the lab.
const (
	// programBuild makes what the others need. It runs in the machine's own namespace, which may reach the internet, before each lab,
	// without input.
	programBuild = "build"
	// programUp makes the network on a node and prints an Output, or nothing. It is called for each node, in order.
	programUp = "up"
	// programReady returns when pods can be added; it is called for each node after programUp has been for all.
	programReady = "ready"
	// programAdd and programDel add and delete a pod, in place of the CNI plugins of Output.Conflist. Both have the environment of a CNI
	// plugin besides (CNI_COMMAND, CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_ARGS); programAdd prints the result of CNI ADD.
	programAdd = "add-pod"
	programDel = "del-pod"
	// programDown removes what would outlive the node's namespace and its processes; it is called for each node.
	programDown = "down"
)

// aboutFile describes the network: an About. It may be missing.
const aboutFile = "network.json"

// About describes a network.
type About struct {
	// Description is one sentence for the report.
	Description string `json:"description"`
	// Needs are programs that have to be installed on this machine.
	Needs []string `json:"needs,omitempty"`
}

// Input is what programs read from standard input.
type Input struct {
	// Lab is the name of the lab, MTU that of the wire in bytes, Uplink the node's device on the wire.
	Lab    string `json:"lab"`
	MTU    int    `json:"mtu"`
	Uplink string `json:"uplink"`
	// Kubeconfig is a file for the lab's API server, which has the Nodes. It is plain HTTP on the loopback of each node.
	Kubeconfig string `json:"kubeconfig"`
	// PodNetworks contain the pod ranges of all nodes.
	PodNetworks []netip.Prefix `json:"podNetworks"`
	// Node is the node on which the program runs, Nodes are all.
	Node  Node   `json:"node"`
	Nodes []Node `json:"nodes"`
	// Pod is the pod of programAdd and programDel.
	Pod *Pod `json:"pod,omitempty"`
}

// Node is a node of a lab.
type Node struct {
	Name      string         `json:"name"`
	Addresses []netip.Prefix `json:"addresses"`
	PodCIDRs  []netip.Prefix `json:"podCIDRs"`
	// StateDir is a directory of the node for files that go with the lab.
	StateDir string `json:"stateDir"`
}

// Pod is a pod to add or delete.
type Pod struct {
	Name string `json:"name"`
	// Netns is the path of its network namespace, Interface the device to make in it.
	Netns     string `json:"netns"`
	Interface string `json:"interface"`
}

// Output is what programUp prints.
type Output struct {
	// Conflist is the CNI configuration list of the node, as a runtime reads it from /etc/cni/net.d. PluginDirs are searched for its
	// plugins; none: the directories of the reference plugins.
	Conflist   json.RawMessage `json:"conflist,omitempty"`
	PluginDirs []string        `json:"pluginDirs,omitempty"`
	// AgentPID is the process whose memory and CPU time the report shows; 0: none.
	AgentPID int `json:"agentPID,omitempty"`
	// Facts are shown in the report, as "version".
	Facts map[string]string `json:"facts,omitempty"`
}

// inputOf is the input of programs on a node.
func inputOf(lab *testbed.Lab, node *testbed.Node, kubeconfig string) Input {
	in := Input{Lab: lab.Name, MTU: lab.MTU, Uplink: testbed.Uplink, Kubeconfig: kubeconfig, Node: nodeOf(node)}
	in.PodNetworks = []netip.Prefix{testbed.PodNetworkIPv4, testbed.PodNetworkIPv6}[:len(node.PodCIDRs)]
	for _, n := range lab.Nodes() {
		in.Nodes = append(in.Nodes, nodeOf(n))
	}
	return in
}

func nodeOf(n *testbed.Node) Node {
	return Node{Name: n.Name, Addresses: n.Addresses, PodCIDRs: n.PodCIDRs, StateDir: n.StateDir}
}

// podOf is a pod by the environment of a CNI plugin.
func podOf(environ map[string]string) *Pod {
	return &Pod{Name: environ["CNI_CONTAINERID"], Netns: environ["CNI_NETNS"], Interface: plugin.PodInterface}
}
