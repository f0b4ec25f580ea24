// Package topology makes nodes and pods of network namespaces: a lab is some nodes on one wire, each with
// its own network namespace, BPF file system, cgroup v2 subtree and state directory.
package topology

import (
	"net/netip"
)

// Options of a lab.
type Options struct {
	// Name tells labs apart; it is part of every name the lab makes.
	Name  string
	Nodes int
	// MTU of the wire in bytes.
	MTU int
	// IPv6 gives nodes and pods IPv6 addresses beside IPv4 ones.
	IPv6 bool
	// Network is the contender whose name the lab was started with; kept for `lab status`.
	Network string
}

// Node is one node: a network namespace with the device eth0 on the lab's wire.
type Node struct {
	Name string `json:"name"`
	// Index is 1 for the first node.
	Index int `json:"index"`
	// Netns is the path of the node's network namespace.
	Netns string `json:"netns"`
	// Addresses are those of eth0, with the wire's prefix length.
	Addresses []netip.Prefix `json:"addresses"`
	PodCIDRs  []netip.Prefix `json:"podCIDRs"`
	// StateDir, BPFFS and Cgroup are the node's own.
	StateDir string `json:"stateDir"`
	BPFFS    string `json:"bpffs"`
	Cgroup   string `json:"cgroup"`
}

// Pod is one pod of a lab, or the node itself where a contender has no pods.
type Pod struct {
	Name string `json:"name"`
	Node string `json:"node"`
	// Netns is the path of the pod's network namespace.
	Netns string `json:"netns"`
	// Addresses are the pod's own, IPv4 first.
	Addresses []netip.Addr `json:"addresses"`
	// MTU is the path MTU to another node's pod, in bytes, as the pod's routes have it.
	MTU int `json:"mtu"`
}
