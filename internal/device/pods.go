// Package device makes and configures the devices of pods. PodDevices is the interface of each kind of device; the packages below
// this one do everything else that needs netlink: links, routes, neighbours, sysctls, the VXLAN device, notifications.
package device

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"strings"
)

// Pods are the pod devices of this node, of all kinds.
var Pods PodDevices = pairs{}

// PodDevices makes, finds, configures, checks and deletes the devices of pods. All methods act in the node's network namespace.
type PodDevices interface {
	// Create makes the device of a pod: the host end ready to forward, for Open, the pod's end under its final name, for Configure.
	// Both are down. On error no device is left.
	Create(spec PodSpec) (PodDevice, error)
	// Open sets a host end up. Until then the pod can send nothing: call it when the programs are attached.
	Open(hostIndex int) error
	// Configure brings up loopback and the pod's end ifName in the network namespace at path netns: MTU, addresses and, for each
	// gateway, a permanent neighbour entry and a default route. On error the interface is left half configured; Delete undoes
	// everything but loopback.
	Configure(netns, ifName string, cfg PodConfig) error
	// IsSecond reports whether another interface of a pod has a default route already.
	IsSecond(netns, ifName string) (bool, error)
	// Check returns an error that names the first difference between the pod's end and what Configure leaves. What others added
	// is not a difference.
	Check(netns, ifName string, cfg PodConfig) error
	// HostEnd finds a host end by name. ok is false if there is none.
	HostEnd(name string) (end HostEnd, ok bool, err error)
	// HostEnds lists the host ends of all pods.
	HostEnds() ([]HostEnd, error)
	// IsHostEnd reports whether a link of this kernel type ("veth", "netkit") and name is a host end. It also holds while the link is being
	// made and after its peer is gone.
	IsHostEnd(kind, name string) bool
	// PacketsFrom returns how many packets the pod behind a host end has sent. ok is false if there is no such host end.
	PacketsFrom(name string) (packets uint64, ok bool)
	// SetMTU sets the MTU of both ends, in bytes. netns is the last known path of the pod's namespace; it may be empty or stale.
	// The error is ErrPodUnreachable if the namespace cannot be entered.
	SetMTU(hostIndex int, netns string, mtu int) error
	// Delete deletes a host end and with it the pod's end, its routes and its neighbours, but for a macvlan device. A device that does
	// not exist is no error; a name without HostPrefix is.
	Delete(name string) error
	// DeleteMacvlan deletes the device ifName in the network namespace at path netns if it is a macvlan device. No such device and no such
	// path are no errors.
	DeleteMacvlan(netns, ifName string) error
}

// ErrPodUnreachable reports that the pod's network namespace cannot be entered; the host end is unchanged.
var ErrPodUnreachable = errors.New("the pod's network namespace cannot be entered")

// PodSpec says which device to make.
type PodSpec struct {
	Kind        Kind
	ContainerID string
	// IfName is the name of the pod's end, in the pod.
	IfName string
	// Netns is the path of the pod's network namespace.
	Netns string
	// MTU of both ends in bytes; 0 keeps the kernel's default.
	MTU int
	// Parent is the index of the parent of a macvlan device.
	Parent int
}

// PodDevice is the device of a pod as Create made it.
type PodDevice struct {
	HostName  string
	HostIndex int
	HostMAC   net.HardwareAddr
	PodName   string
	// PodIndex is the index of the pod's end, in the pod's namespace.
	PodIndex int
	PodMAC   net.HardwareAddr
	// NetnsCookie of a pod with a macvlan device is that of its network namespace: see sock.NetnsCookie.
	NetnsCookie uint64
}

// HostEnd is the host end of a pod's device.
type HostEnd struct {
	Name string
	// Kind is that of the pod's device.
	Kind  Kind
	Index int
	MAC   net.HardwareAddr
	// MTU in bytes, without the link-layer header.
	MTU int
	// PodIndex is the index of the pod's end, in the pod's namespace.
	PodIndex int
	// NetnsID is the kernel's id of the pod's network namespace in the node's (IFLA_LINK_NETNSID), from 0.
	NetnsID int
}

// HostPrefix starts the name of every host end.
const HostPrefix = "bl"

const hostDigits = 13

// HostName returns the name of the host end for an interface of a container: HostPrefix and 13 hexadecimal digits of a hash, the 15
// characters that the kernel allows. It depends on its arguments only, so that DEL needs no state of ADD.
func HostName(containerID, ifName string) string {
	sum := podHash(containerID, ifName)
	return HostPrefix + hex.EncodeToString(sum[:])[:hostDigits]
}

// IsHostName reports whether a name has the form that HostName returns.
func IsHostName(name string) bool {
	digits, ours := strings.CutPrefix(name, HostPrefix)
	return ours && len(digits) == hostDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

func podHash(containerID, ifName string) [sha256.Size]byte {
	return sha256.Sum256([]byte(containerID + "/" + ifName))
}

// podMACs derives the link-layer addresses of the two ends: locally administered, unicast, and never equal.
func podMACs(containerID, ifName string) (host, pod net.HardwareAddr) {
	sum := podHash(containerID, ifName)
	host, pod = net.HardwareAddr(sum[8:14]), net.HardwareAddr(sum[14:20])
	host[0] = host[0]&0xf0 | 0x02
	pod[0] = pod[0]&0xf0 | 0x06
	return host, pod
}
