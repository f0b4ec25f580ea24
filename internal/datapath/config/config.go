// Package config holds what a load of the datapath depends on: features, sizes of maps, and the programs that follow from them.
package config

import (
	"github.com/beeline-cni/beeline/internal/device/localport"
)

// Datapath is everything that a load of the datapath depends on.
type Datapath struct {
	// Root is a directory on a BPF file system; the datapath owns what is below it. The file system
	// itself is the caller's.
	Root string
	// EBPFRouting lets packets go from pod to pod by redirection; otherwise the host's stack forwards.
	EBPFRouting bool
	// Masquerade gives what pods send to the world the address of the uplink.
	Masquerade bool
	// StackServices says that the host's stack translates connections between pods, as kube-proxy has it do: with
	// eBPF routing each packet is then looked up in conntrack before it goes straight. Needs HaveConntrack.
	StackServices bool
	// Services lets the programs here translate Services. Without it their maps have one entry each.
	Services bool
	// Policy lets the programs put NetworkPolicies into force. Without it their maps have one entry each.
	Policy bool
	// Events says what flows tell of, and FlowsRate how many drops a second each CPU may tell of; 0 is the rate of bpf/config.h.
	Flows     FlowMode
	FlowsRate uint32
	// FlowsSample lets flows tell of one session in so many; 0 and 1 are all of them.
	FlowsSample uint32
	// DSR lets backends of other nodes answer clients of the world directly, for Services that ask for it.
	DSR bool
	// HostNetns is the cookie of the node's own network namespace (SO_NETNS_COOKIE).
	HostNetns uint64
	// NATPorts are the ports that translation gives; the zero value is 40000 to 65535.
	NATPorts localport.Range
	// TunnelPort is the UDP port of tunnels, which nothing else gets to in a node's name; 0 where no node of the cluster has one.
	TunnelPort uint16
	// Sizes are those of the maps.
	Sizes Sizes
	// MaglevSize is the number of entries of each table of consistent hashing, a prime; 0 goes by the number of backends.
	MaglevSize int
	// Cgroup is the directory of the cgroup2 file system whose processes' sockets find Services; empty is none.
	Cgroup string
	// Acceleration says where connections from the world are forwarded.
	Acceleration Acceleration
}

// Acceleration says where connections from the world are forwarded.
type Acceleration string

// The places. The zero value is AccelerationTC.
const (
	// AccelerationAuto is AccelerationXDP where the uplink's driver has it and gains by it.
	AccelerationAuto Acceleration = "auto"
	// AccelerationXDP is in the driver, before the kernel makes a socket buffer of a packet.
	AccelerationXDP Acceleration = "xdp"
	// AccelerationTC is behind that, where every device can.
	AccelerationTC Acceleration = "tc"
)
