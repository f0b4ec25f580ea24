package device

import (
	"slices"

	"github.com/vishvananda/netlink"
)

// Kind is a kind of pod device. A pod keeps its device for life; a node may have pods of several kinds. The value is the kernel's type
// of the link in the pod.
type Kind string

// The kinds.
const (
	// Veth is a pair of Ethernet devices. What a pod sends passes the backlog queue of the host end before from_pod sees it.
	Veth Kind = "veth"
	// Netkit is a pair of devices for BPF programs (Linux 6.7). from_pod runs while the pod sends, without a queue.
	Netkit Kind = "netkit"
	// Macvlan is a device on an uplink of the node, its parent, with a MAC that the external network knows. The node's end is that of a
	// veth pair, whose end in the pod stays down. It is for pods with addresses of an IPPool.
	Macvlan Kind = "macvlan"
)

// Kinds are all kinds.
var Kinds = []Kind{Veth, Netkit, Macvlan}

// Known reports whether k is one of Kinds.
func (k Kind) Known() bool { return slices.Contains(Kinds, k) }

func (k Kind) isPair() bool { return k == Veth || k == Netkit }

// Pair is a pair of devices to create, with the attributes of the host end and those of the pod's end.
//
// The host end of a netkit pair is its primary device, which alone manages the programs of both: a pod can neither detach nor change
// them. Without a program at the pod's end nothing that the pod sends leaves it (policy blackhole). Both ends carry Ethernet headers
// (mode L2), as veth does: the programs are the same. Marks, timestamps and the ingress device do not leave the pod (scrub).
func (k Kind) Pair(host, pod netlink.LinkAttrs) netlink.Link {
	if k == Netkit {
		pair := &netlink.Netkit{
			LinkAttrs: host, Mode: netlink.NETKIT_MODE_L2,
			Policy: netlink.NETKIT_POLICY_FORWARD, PeerPolicy: netlink.NETKIT_POLICY_BLACKHOLE,
			Scrub: netlink.NETKIT_SCRUB_DEFAULT, PeerScrub: netlink.NETKIT_SCRUB_DEFAULT,
		}
		pair.SetPeerAttrs(&pod)
		return pair
	}
	pair := netlink.NewVeth(host)
	pair.PeerName, pair.PeerHardwareAddr, pair.PeerNamespace = pod.Name, pod.HardwareAddr, pod.Namespace
	return pair
}
