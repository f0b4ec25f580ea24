package node

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/ipseckeys"
	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/device"
)

// Routing says what forwards packets between pods.
type Routing string

// The kinds of routing.
const (
	// RoutingEBPF redirects packets between pods and the uplink, past the kernel stack.
	RoutingEBPF Routing = "ebpf"
	// RoutingKernel leaves forwarding to the kernel stack, with its firewall and its routing rules.
	RoutingKernel Routing = "kernel"
)

// TunnelMode says which nodes are reached through VXLAN.
type TunnelMode string

// The modes of tunnels.
const (
	// TunnelAuto is for nodes that are not on the uplink's link.
	TunnelAuto TunnelMode = "auto"
	// TunnelNone is for no node: the network between them routes the pod ranges.
	TunnelNone TunnelMode = "none"
	// TunnelVXLAN is for all nodes.
	TunnelVXLAN TunnelMode = "vxlan"
)

// DeviceAuto chooses the kind of pods' devices: netkit where the kernel supports it, else veth.
const DeviceAuto device.Kind = "auto"

// Config is the configuration of the node's network.
type Config struct {
	// NodeName is the metadata.name of this node's Node object.
	NodeName string
	// Uplink is "auto" or a comma-separated list of devices; the first one leads to other nodes. "auto" is the device that holds the node's
	// address, and those of default routes.
	Uplink string
	// Device is the kind of the devices of new pods, or DeviceAuto. Existing pods keep theirs.
	Device device.Kind
	// VethRuntimeClasses is a comma-separated list of patterns: pods of these runtime classes get veth devices.
	VethRuntimeClasses string
	// MTU of pods in bytes; 0 follows the uplink.
	MTU int
	// Routing between pods.
	Routing Routing
	// RoutesMax is the capacity for prefixes of nodes.
	RoutesMax int
	// Tunnel says which nodes are reached through VXLAN.
	Tunnel TunnelMode
	// TunnelPort is the UDP port of VXLAN, the same on all nodes.
	TunnelPort int
	// Encryption of packets between nodes. EncryptionStrict drops what is not encrypted; else plaintext goes to and comes from
	// nodes without a key.
	Encryption       EncryptionMode
	EncryptionStrict bool
	// EncryptedCIDRs are pod ranges of the cluster, to which nothing goes in plaintext even if no known node has them.
	EncryptedCIDRs value.Prefixes
	// WireGuardPort is the UDP port of WireGuard, the same on all nodes. WireGuardKey is the file of this node's private key.
	WireGuardPort int
	WireGuardKey  string
	// IPsecKeys is the file of the cluster's keys of IPsec, IPsecState what this node has used of them.
	IPsecKeys, IPsecState string
	// NodeCIDRs are the networks of node addresses; none: see cluster.Vetter.
	NodeCIDRs value.Prefixes
	// Masquerade gives packets from pods to external addresses the node's address.
	Masquerade bool
	// NonMasquerade are CIDRs exempt from masquerading.
	NonMasquerade value.Prefixes
}

// Defaults is the configuration without flags.
func Defaults() Config {
	return Config{
		Uplink: "auto", Device: DeviceAuto, VethRuntimeClasses: "kata*", Routing: RoutingEBPF, Tunnel: TunnelAuto, Masquerade: true,
		TunnelPort: 4789, // IANA's for VXLAN
		Encryption: EncryptionNone, EncryptionStrict: true, WireGuardKey: "/var/lib/beeline/wireguard.key",
		IPsecKeys: "/etc/beeline/ipsec/keys", IPsecState: ipseckeys.DefaultLedger,
		WireGuardPort: 28781, // outside of the usual ranges of NodePorts, ephemeral ports and --nat-ports
		RoutesMax:     32768, // enough for more nodes than Kubernetes supports (5,000), of both families
	}
}

// Bounds of an MTU: IPv6 needs 1280 bytes on every link (RFC 8200, 5), and the kernel's devices take 65535.
const (
	minMTU = 1280
	maxMTU = 65535
)

// Validate reports every impossible value, each with the name of its flag.
func (c Config) Validate() error {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("--node-name: must not be empty"))
	}
	if names := value.List(c.Uplink); len(names) == 0 || len(names) > 1 && slices.Contains(names, "auto") {
		errs = append(errs, fmt.Errorf(`--uplink: %q is neither "auto" nor the names of devices`, c.Uplink))
	}
	if c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU) {
		errs = append(errs, fmt.Errorf("--mtu: %d is not 0 (follow the uplink) or between %d and %d", c.MTU, minMTU, maxMTU))
	}
	for _, pattern := range value.List(c.VethRuntimeClasses) {
		if _, err := path.Match(pattern, ""); err != nil {
			errs = append(errs, fmt.Errorf("--veth-runtime-classes: %q is no pattern: %w", pattern, err))
		}
	}
	return errors.Join(append(errs,
		value.OneOf("--device", c.Device, append([]device.Kind{DeviceAuto}, device.Kinds...)...),
		value.OneOf("--routing", c.Routing, RoutingEBPF, RoutingKernel),
		value.OneOf("--tunnel", c.Tunnel, TunnelAuto, TunnelNone, TunnelVXLAN),
		value.Between("--tunnel-port", c.TunnelPort, 1, 65535),
		value.OneOf("--encryption", c.Encryption, EncryptionNone, EncryptionWireGuard, EncryptionIPsec),
		value.Between("--wireguard-port", c.WireGuardPort, 1, 65535),
		value.Between("--routes-max", c.RoutesMax, 1, value.MaxTableSize))...)
}
