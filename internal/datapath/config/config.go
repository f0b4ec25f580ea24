// Package config holds what loading the datapath depends on: features and map sizes, and the programs that follow
// from them.
package config

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/device/localport"
)

// Datapath is the configuration of one load of the datapath.
type Datapath struct {
	// Root is a directory on a BPF file system. The datapath owns what is below it; the caller owns the file system.
	Root string
	// EBPFRouting forwards packets between pods by redirection; otherwise the host's stack forwards them.
	EBPFRouting bool
	// Netkit says that pods may have netkit devices: see kernel.HaveNetkit.
	Netkit bool
	// Handled is the number that marks handled packets (bpf/lib/fwd/handled.h), the same in all programs; 0 is a random one.
	Handled uint64
	// Macvlan says that pods may have macvlan devices on uplinks. It needs EBPFRouting and HostNetns.
	Macvlan bool
	// MacvlanSource is the number of which the source MAC of the node's frames to its macvlan pods is made
	// (bpf/lib/fwd/macvlan.h); 0 is a random one.
	MacvlanSource uint64
	// Masquerade gives packets from pods to external addresses the address of the uplink.
	Masquerade bool
	// StackServices says that the host's stack translates connections between pods, as kube-proxy configures it. With
	// eBPF routing the datapath then looks up each packet in the kernel's conntrack before it redirects the packet.
	// It needs kernel.HaveConntrack.
	StackServices bool
	// Services enables Service load balancing. Without it the Service maps have one entry each.
	Services bool
	// Policy enforces NetworkPolicies. Without it the policy maps have one entry each.
	Policy bool
	// Flows selects the flow events to report. FlowsRate limits the drops that each CPU reports per second; 0 is the
	// rate of bpf/config.h.
	Flows     FlowMode
	FlowsRate uint32
	// FlowsSample reports one connection in N; 0 and 1 report all of them.
	FlowsSample uint32
	// DSR lets backends on other nodes reply to external clients directly, for Services that request it.
	DSR bool
	// HostNetns is the cookie of the node's own network namespace (SO_NETNS_COOKIE).
	HostNetns uint64
	// NATPorts are the ports that SNAT allocates; the zero value is 40000 to 65535.
	NATPorts localport.Range
	// TunnelPort is the UDP port of tunnels. Pods cannot reach it with a node's address. It is 0 if no node of the
	// cluster has a tunnel.
	TunnelPort uint16
	// Encryption says how packets to other nodes may have to be encrypted; empty: not at all. PlaintextAllowed accepts
	// plaintext instead, while nodes turn encryption on.
	Encryption       Encryption
	PlaintextAllowed bool
	// Sizes are the capacities of the maps.
	Sizes Sizes
	// MaglevSize is the number of entries of each Maglev table, a prime; 0 derives it from the number of backends.
	MaglevSize int
	// Cgroup is a directory of the cgroup2 file system. Sockets of its processes are load-balanced at connect; empty
	// disables that.
	Cgroup string
	// Acceleration selects the hook that forwards external connections.
	Acceleration Acceleration
}

// Encryption says how packets between nodes are encrypted.
type Encryption string

// The kinds of encryption.
const (
	EncryptionWireGuard Encryption = "wireguard"
	EncryptionIPsec     Encryption = "ipsec"
)

// Programs are the programs of the device that encrypts.
func (e Encryption) Programs() []string {
	switch e {
	case EncryptionWireGuard:
		return bpf.WireguardPrograms
	case EncryptionIPsec:
		return bpf.IPsecPrograms
	}
	return nil
}

// Acceleration selects the hook that forwards external connections.
type Acceleration string

// The hooks. The zero value means AccelerationTC.
const (
	// AccelerationAuto is AccelerationXDP if the uplink's driver supports it and benefits from it.
	AccelerationAuto Acceleration = "auto"
	// AccelerationXDP forwards in the driver, before the kernel allocates a socket buffer.
	AccelerationXDP Acceleration = "xdp"
	// AccelerationTC forwards at tc, which every device supports.
	AccelerationTC Acceleration = "tc"
)
