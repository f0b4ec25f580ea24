// Package testbed makes nodes and pods of network namespaces: a lab is some nodes on one wire, or in several
// subnets with a router between them, each with
// its own network namespace, BPF file system, cgroup v2 subtree and state directory.
//
// Everything a lab makes carries its mark, so that Down finds it again after a crash without any list:
//
//	/run/beeline-lab/<lab>/                 the record: made first, removed last
//	/run/beeline-lab/<lab>/<node>/          state of a node; bpf/ below it is the node's BPF file system
//	<cgroup2>/beeline-lab/<lab>/<node>/     processes of a node
//	/run/netns/bl-<lab>-<node>              a node (n1, n2, …), or "wire": the switch of three or more nodes, or
//	                                        the router with a switch for each subnet
//	/run/netns/bl-<lab>-<node>.<pod>        a pod
//
// Devices live in these namespaces only and go with them. A lab changes nothing in the machine's own network namespace.
package testbed

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"

	"github.com/beeline-cni/beeline/lab/cgroup"
)

// Options of a lab.
type Options struct {
	// Name identifies the lab; it is part of every name the lab makes.
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
	// MTU of the wire in bytes.
	MTU int `json:"mtu"`
	// Subnets is how many subnets the nodes are spread over, in their order. The router between several knows
	// the nodes and no pods.
	Subnets int `json:"subnets,omitempty"`
	// Outside puts a switch between the nodes even if they are two, and on it clients that do not belong to the cluster:
	// see Lab.Client. It wants one subnet.
	Outside bool `json:"outside,omitempty"`
	// IPv6 gives nodes and pods IPv6 addresses beside IPv4 ones.
	IPv6 bool `json:"ipv6"`
	// Network is the network whose name the lab was started with; kept for `lab status`.
	Network string `json:"network,omitempty"`
}

// Limits of Options.
const (
	// MaxNodes keeps all pairs of nodes well below the machine's limit of neighbours, which is 1024 for all
	// namespaces together (net.ipv4.neigh.default.gc_thresh3).
	MaxNodes = 20
	// MinMTU leaves an IPv6 packet of 1280 bytes its room inside VXLAN.
	MinMTU = 1330
	MaxMTU = 65535
)

// labName matches names of labs and pods. It keeps names of namespaces unambiguous (no dot in a lab's name, see mark.go)
// and short enough for paths of unix sockets (108 bytes) below the state directory.
var labName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`)

// Defaults fills what was left zero: the lab "default" of two nodes with MTU 1500.
func (o Options) Defaults() Options {
	if o.Name == "" {
		o.Name = "default"
	}
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Subnets == 0 {
		o.Subnets = 1
	}
	return o
}

// Validate names every wrong field, by the flag of beeline-lab up.
func (o Options) Validate() error {
	var errs []error
	if !labName.MatchString(o.Name) {
		errs = append(errs, fmt.Errorf("--name %q: want up to 30 lower-case letters, digits and inner dashes", o.Name))
	}
	nodes := o.Nodes >= 1 && o.Nodes <= MaxNodes
	if !nodes {
		errs = append(errs, fmt.Errorf("--nodes %d: want 1 to %d", o.Nodes, MaxNodes))
	}
	if o.MTU < MinMTU || o.MTU > MaxMTU {
		errs = append(errs, fmt.Errorf("--mtu %d: want %d to %d", o.MTU, MinMTU, MaxMTU))
	}
	if o.Subnets < 1 || nodes && o.Subnets > o.Nodes {
		errs = append(errs, fmt.Errorf("--subnets %d: want 1 to %d, the number of nodes", o.Subnets, o.Nodes))
	}
	if o.Outside && o.Subnets > 1 {
		errs = append(errs, fmt.Errorf("--subnets %d: clients outside are on one switch, so there is one", o.Subnets))
	}
	return errors.Join(errs...)
}

// subnetOf is the subnet of node i (from 1), counted from 0.
func (o Options) subnetOf(i int) int {
	if o.Subnets <= 1 {
		return 0
	}
	return (i - 1) * o.Subnets / o.Nodes
}

// Node is one node: a network namespace with the device eth0 on the lab's wire.
type Node struct {
	Name string `json:"name"`
	// Index is 1 for the first node.
	Index int `json:"index"`
	// Subnet is 0 for the first subnet.
	Subnet int `json:"subnet,omitempty"`
	// Netns is the node's network namespace and cgroup.
	Netns
	// Addresses are those of eth0, with the wire's prefix length; IPv4 first.
	Addresses []netip.Prefix `json:"addresses"`
	PodCIDRs  []netip.Prefix `json:"podCIDRs"`
	// StateDir and BPFFS are the node's own.
	StateDir string `json:"stateDir"`
	BPFFS    string `json:"bpffs"`
}

// Processes are the ids of the processes that run on the node and in its pods now.
func (n *Node) Processes() ([]int, error) { return cgroup.ProcessesBelow(n.Cgroup) }

// Pod is one pod of a lab, or the node itself where a network has no pods.
type Pod struct {
	Name string `json:"name"`
	Node string `json:"node"`
	// Netns is the pod's network namespace, and its cgroup below the node's.
	Netns
	// Addresses are the pod's own, IPv4 first.
	Addresses []netip.Addr `json:"addresses"`
	// MTU is the path MTU to another node's pod, in bytes, as the pod's routes have it.
	MTU int `json:"mtu"`
}

// Lab is a lab that is up. Its value does not change; several processes may hold one.
type Lab struct {
	Options
	// CongestionControl is the TCP congestion control of every namespace of the lab.
	CongestionControl string
	nodes             []*Node
}

// Nodes are the nodes in their order. The slice is the lab's own.
func (l *Lab) Nodes() []*Node { return l.nodes }

// Node returns the i-th node, counted from 0; it panics like a slice where there is none.
func (l *Lab) Node(i int) *Node { return l.nodes[i] }

// NodeNamed returns the node of that name ("n1").
func (l *Lab) NodeNamed(name string) (*Node, bool) {
	for _, n := range l.nodes {
		if n.Name == name {
			return n, true
		}
	}
	return nil, false
}

// Dir is the lab's own directory, where networks may keep what all nodes share.
func (l *Lab) Dir() string { return labDir(l.Name) }

// planNodes derives the nodes of a lab from its options and the mount of cgroup2.
func planNodes(o Options, cgroupRoot string) []*Node {
	nodes := make([]*Node, 0, o.Nodes)
	for i := 1; i <= o.Nodes; i++ {
		name := fmt.Sprintf("n%d", i)
		state := filepath.Join(labDir(o.Name), name)
		n := &Node{
			Name: name, Index: i, Subnet: o.subnetOf(i),
			Netns:     Netns{Path: nodeNetns(o.Name, name), Cgroup: filepath.Join(labCgroup(cgroupRoot, o.Name), name)},
			Addresses: o.wire(o.subnetOf(i), i),
			PodCIDRs:  o.podCIDRs(i),
			StateDir:  state,
			BPFFS:     filepath.Join(state, "bpf"),
		}
		nodes = append(nodes, n)
	}
	return nodes
}
