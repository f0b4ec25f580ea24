package device

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// PairSpec says which pair to make.
type PairSpec struct {
	ContainerID string
	// IfName is the name of the pod's end, in the pod.
	IfName string
	// Netns is the path of the pod's network namespace.
	Netns string
	// MTU of both ends in bytes; 0 leaves the kernel's default, to be set when it is known.
	MTU int
}

// Pair is a veth pair: one end on the host, one in a pod.
type Pair struct {
	HostName  string
	HostIndex int
	HostMAC   net.HardwareAddr
	PodName   string
	// PodIndex is the index of the pod's end in the pod's namespace.
	PodIndex int
	PodMAC   net.HardwareAddr
}

// HostName returns the name of the host end for an interface of a container: HostPrefix and 13
// hexadecimal digits of a hash, 15 characters, the most that the kernel allows. It is the same every time,
// so that a DEL needs no memory of the ADD.
func HostName(containerID, ifName string) string {
	sum := pairHash(containerID, ifName)
	return HostPrefix + hex.EncodeToString(sum[:])[:hostDigits]
}

const hostDigits = 13

// isHostName tells whether HostName gives such names.
func isHostName(name string) bool {
	digits, ours := strings.CutPrefix(name, HostPrefix)
	return ours && len(digits) == hostDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

func pairHash(containerID, ifName string) [sha256.Size]byte {
	return sha256.Sum256([]byte(containerID + "/" + ifName))
}

// pairMACs derives the link-layer addresses of the two ends: locally administered, unicast, and never equal.
func pairMACs(containerID, ifName string) (host, pod net.HardwareAddr) {
	sum := pairHash(containerID, ifName)
	host, pod = net.HardwareAddr(sum[8:14]), net.HardwareAddr(sum[14:20])
	host[0] = host[0]&0xf0 | 0x02
	pod[0] = pod[0]&0xf0 | 0x06
	return host, pod
}

// CreatePair makes a veth pair with one end on the host and the other directly in the pod's namespace
// under its final name, never visible on the host. The host end is up, has no address (not even a
// link-local one), ignores router advertisements, forwards, and does not filter by reverse path. The pod's
// end is left down for ConfigurePod. On error nothing of the pair exists.
func CreatePair(spec PairSpec) (pair Pair, err error) {
	pod, err := ns.GetNS(spec.Netns)
	if err != nil {
		return Pair{}, fmt.Errorf("open namespace of the pod: %w", err)
	}
	defer pod.Close()

	hostMAC, podMAC := pairMACs(spec.ContainerID, spec.IfName)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = HostName(spec.ContainerID, spec.IfName)
	attrs.HardwareAddr = hostMAC
	attrs.MTU = spec.MTU
	veth := netlink.NewVeth(attrs)
	veth.PeerName = spec.IfName
	veth.PeerHardwareAddr = podMAC
	veth.PeerNamespace = netlink.NsFd(int(pod.Fd()))
	if err := netlink.LinkAdd(veth); err != nil {
		return Pair{}, fmt.Errorf("create pair %s and %s in %s: %w", attrs.Name, spec.IfName, spec.Netns, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, DeleteHost(attrs.Name))
		}
	}()

	link, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return Pair{}, fmt.Errorf("find %s just created: %w", attrs.Name, err)
	}
	if link.Attrs().NetNsID < 0 {
		return Pair{}, fmt.Errorf("create pair %s: %s is the node's own network namespace, not a pod's", attrs.Name, spec.Netns)
	}
	if err := prepareHostEnd(link); err != nil {
		return Pair{}, err
	}
	return Pair{
		HostName: attrs.Name, HostIndex: link.Attrs().Index, HostMAC: hostMAC,
		PodName: spec.IfName, PodIndex: link.Attrs().ParentIndex, PodMAC: podMAC,
	}, nil
}

// prepareHostEnd sets what must be in force before the device comes up, then sets it up.
func prepareHostEnd(link netlink.Link) error {
	name := link.Attrs().Name
	if err := setDevice("ipv6", name,
		setting{"addr_gen_mode", "1"}, // none: no link-local address
		setting{"accept_ra", "0"},
		setting{"disable_ipv6", "0"},
		setting{"forwarding", "1"},
	); err != nil {
		return err
	}
	if err := setDevice("ipv4", name, setting{"rp_filter", "0"}, setting{"forwarding", "1"}); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// DeleteHost deletes the host end of a pair, and with it the pod's end, its routes and its neighbours. A
// device that does not exist is no error; a name without HostPrefix is.
func DeleteHost(name string) error {
	if len(name) <= len(HostPrefix) || name[:len(HostPrefix)] != HostPrefix {
		return fmt.Errorf("delete device %s: not the name of a pod's device", name)
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("delete device %s: %w", name, err)
	}
	return nil
}
