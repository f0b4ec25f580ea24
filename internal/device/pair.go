package device

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// pairs implements PodDevices with pairs of devices, veth or netkit: one end on the host, one in the pod.
type pairs struct{ podEnd }

// minIPv6MTU is the smallest MTU of a device with IPv6 (RFC 8200, section 5): below it the kernel removes its addresses.
const minIPv6MTU = 1280

// Create makes the pod's end directly in the pod's namespace, so it is never visible on the host. The host end has no address (not
// even a link-local one), ignores router advertisements, forwards, and does not filter by reverse path: once it is up, nothing but
// programs checks what the pod sends.
func (p pairs) Create(spec PodSpec) (made PodDevice, err error) {
	if !spec.Kind.Known() {
		return PodDevice{}, fmt.Errorf("create the device of container %s: unknown kind %q", spec.ContainerID, spec.Kind)
	}
	pod, err := ns.GetNS(spec.Netns)
	if err != nil {
		return PodDevice{}, fmt.Errorf("open the pod's network namespace: %w", err)
	}
	defer pod.Close()

	host, inPod := netlink.NewLinkAttrs(), netlink.LinkAttrs{Name: spec.IfName, MTU: spec.MTU, Namespace: netlink.NsFd(int(pod.Fd()))}
	host.Name, host.MTU = HostName(spec.ContainerID, spec.IfName), spec.MTU
	if spec.Kind == Macvlan {
		return p.createMacvlan(pod, spec, host, inPod)
	}
	host.HardwareAddr, inPod.HardwareAddr = podMACs(spec.ContainerID, spec.IfName)
	return p.createPair(spec, host, inPod)
}

// createPair makes a pair with these attributes.
func (p pairs) createPair(spec PodSpec, attrs, peer netlink.LinkAttrs) (made PodDevice, err error) {
	if err := netlink.LinkAdd(spec.Kind.Pair(attrs, peer)); err != nil {
		return PodDevice{}, fmt.Errorf("create %s pair %s and %s in %s: %w", spec.Kind, attrs.Name, peer.Name, spec.Netns, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Delete(attrs.Name))
		}
	}()

	link, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return PodDevice{}, fmt.Errorf("find device %s after its creation: %w", attrs.Name, err)
	}
	if link.Attrs().NetNsID < 0 {
		return PodDevice{}, fmt.Errorf("create %s pair %s: %s is the node's own network namespace, not a pod's", spec.Kind, attrs.Name, spec.Netns)
	}
	if err := prepareHostEnd(attrs.Name); err != nil {
		return PodDevice{}, err
	}
	return PodDevice{
		HostName: attrs.Name, HostIndex: link.Attrs().Index, HostMAC: attrs.HardwareAddr,
		PodName: peer.Name, PodIndex: link.Attrs().ParentIndex, PodMAC: peer.HardwareAddr,
	}, nil
}

// Open implements PodDevices.
func (pairs) Open(hostIndex int) error {
	host, err := netlink.LinkByIndex(hostIndex)
	if err != nil {
		return fmt.Errorf("find device %d: %w", hostIndex, err)
	}
	if err := netlink.LinkSetUp(host); err != nil {
		return fmt.Errorf("set %s up: %w", host.Attrs().Name, err)
	}
	return nil
}

// prepareHostEnd sets the sysctls that must apply before the device comes up.
func prepareHostEnd(name string) error {
	// addr_gen_mode 1: no link-local address.
	if err := sysctl.SetDevice("ipv6", name, "addr_gen_mode=1", "accept_ra=0", "disable_ipv6=0", "forwarding=1"); err != nil {
		return err
	}
	return sysctl.SetDevice("ipv4", name, "rp_filter=0", "forwarding=1")
}

// Delete deletes the host end, and the kernel the pod's end with it.
func (pairs) Delete(name string) error {
	if len(name) <= len(HostPrefix) || !strings.HasPrefix(name, HostPrefix) {
		return fmt.Errorf("delete device %s: not the name of a pod's device", name)
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !rtnl.IsNotFound(err) {
		return fmt.Errorf("delete device %s: %w", name, err)
	}
	return nil
}

// HostEnds lists the devices with HostPrefix whose peer is in another namespace.
func (pairs) HostEnds() ([]HostEnd, error) {
	links, err := rtnl.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var ends []HostEnd
	for _, link := range links {
		if isPairHostEnd(link) {
			ends = append(ends, hostEndOf(link))
		}
	}
	return ends, nil
}

func (pairs) HostEnd(name string) (end HostEnd, ok bool, err error) {
	link, err := findHostEnd(name)
	if link == nil || err != nil {
		return HostEnd{}, false, err
	}
	return hostEndOf(link), true, nil
}

func (pairs) IsHostEnd(kind, name string) bool { return Kind(kind).isPair() && IsHostName(name) }

// PacketsFrom reads the counter of the pod's end: the host end of a netkit pair does not count packets that its program redirects.
func (pairs) PacketsFrom(name string) (packets uint64, ok bool) {
	link, err := findHostEnd(name)
	if link == nil || err != nil {
		return 0, false
	}
	pod, err := readPeer(link)
	if err != nil || pod.Statistics == nil {
		return 0, false
	}
	return pod.Statistics.TxPackets, true
}

// findHostEnd returns nil if there is no such host end.
func findHostEnd(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if rtnl.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find device %s: %w", name, err)
	}
	if !isPairHostEnd(link) {
		return nil, nil
	}
	return link, nil
}

func isPairHostEnd(link netlink.Link) bool {
	attrs := link.Attrs()
	return Kind(link.Type()).isPair() && attrs.NetNsID >= 0 && strings.HasPrefix(attrs.Name, HostPrefix)
}

func hostEndOf(link netlink.Link) HostEnd {
	attrs := link.Attrs()
	kind := Kind(link.Type())
	if kind == Veth && attrs.Alias == macvlanAlias {
		kind = Macvlan
	}
	return HostEnd{
		Name: attrs.Name, Kind: kind, Index: attrs.Index, MAC: attrs.HardwareAddr, MTU: attrs.MTU,
		PodIndex: attrs.ParentIndex, NetnsID: attrs.NetNsID,
	}
}

// SetMTU finds a pod whose path is stale by the kernel's id of its namespace, among processes and mounts. It enters and changes
// nothing if both ends have the MTU already. Raising starts with the host end, lowering with the pod's: neither end sends packets
// that the other one drops for longer than one system call.
func (pairs) SetMTU(hostIndex int, netns string, mtu int) error {
	host, err := netlink.LinkByIndex(hostIndex)
	if err != nil {
		return fmt.Errorf("find device %d: %w", hostIndex, err)
	}
	pod, err := readPeer(host)
	if err != nil {
		return err
	}
	if pod.MTU == mtu {
		return setHostMTU(host, mtu)
	}
	inside, err := openNamespace(host.Attrs().NetNsID, netns)
	if err != nil {
		return fmt.Errorf("set MTU of the pod's end of %s: %w: %w", host.Attrs().Name, ErrPodUnreachable, err)
	}
	defer inside.Close()

	if err := checkPodMTU(inside, pod, mtu); err != nil {
		return err
	}
	if mtu > pod.MTU {
		if err := setHostMTU(host, mtu); err != nil {
			return err
		}
		return setPodMTU(inside, pod, mtu)
	}
	if err := setPodMTU(inside, pod, mtu); err != nil {
		return err
	}
	return setHostMTU(host, mtu)
}

// setHostMTU sets the MTU of a host end. When it rises above minIPv6MTU the kernel re-creates the device's IPv6 configuration with
// default settings.
func setHostMTU(host netlink.Link, mtu int) error {
	attrs := host.Attrs()
	if attrs.MTU != mtu {
		if err := netlink.LinkSetMTU(host, mtu); err != nil {
			return fmt.Errorf("set MTU of %s to %d: %w", attrs.Name, mtu, err)
		}
	}
	if attrs.MTU >= minIPv6MTU || mtu < minIPv6MTU {
		return nil
	}
	// Disabling IPv6 first removes the link-local address that the kernel added at once.
	if err := sysctl.SetDevice("ipv6", attrs.Name, "disable_ipv6=1"); err != nil {
		return err
	}
	return prepareHostEnd(attrs.Name)
}

// readPeer reads the pod's end of a pair without entering the pod's namespace and without its path: it requests the peer by
// its index and the kernel's id of its namespace (IFLA_TARGET_NETNSID).
//
// That attribute only works for reading: with RTM_SETLINK and RTM_NEWLINK the kernel looks the index up in the *sender's* namespace
// and moves that device into the target namespace (seen on 6.18).
func readPeer(host netlink.Link) (*netlink.LinkAttrs, error) {
	attrs := host.Attrs()
	if !Kind(host.Type()).isPair() || attrs.NetNsID < 0 {
		return nil, fmt.Errorf("read the pod's end of %s: not a device with its peer in a pod", attrs.Name)
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(attrs.ParentIndex)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(attrs.NetNsID))))
	replies, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, fmt.Errorf("read the pod's end of %s: %w", attrs.Name, err)
	}
	if len(replies) != 1 {
		return nil, fmt.Errorf("read the pod's end of %s: got %d messages, want 1", attrs.Name, len(replies))
	}
	link, err := netlink.LinkDeserialize(nil, replies[0])
	if err != nil {
		return nil, fmt.Errorf("parse the pod's end of %s: %w", attrs.Name, err)
	}
	return link.Attrs(), nil
}

// checkPodMTU refuses an MTU that would make the kernel remove the pod's IPv6 addresses.
func checkPodMTU(inside ns.NetNS, pod *netlink.LinkAttrs, mtu int) error {
	if mtu >= minIPv6MTU {
		return nil
	}
	return inside.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByIndex(pod.Index)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", pod.Name, err)
		}
		addresses, err := rtnl.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, unix.AF_INET6) })
		if err != nil {
			return fmt.Errorf("list addresses of %s in the pod: %w", pod.Name, err)
		}
		for _, address := range addresses {
			if !net.IP.IsLinkLocalUnicast(address.IP) {
				return fmt.Errorf("set MTU of %s in the pod to %d: it has address %s and IPv6 needs an MTU of %d", pod.Name, mtu, address.IP, minIPv6MTU)
			}
		}
		return nil
	})
}

func setPodMTU(inside ns.NetNS, pod *netlink.LinkAttrs, mtu int) error {
	return inside.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByIndex(pod.Index)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", pod.Name, err)
		}
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set MTU of %s in the pod to %d: %w", link.Attrs().Name, mtu, err)
		}
		if pod.MTU < minIPv6MTU && mtu >= minIPv6MTU {
			// The kernel enables IPv6 on the device again. The pod had none: its MTU was too small.
			return sysctl.SetDevice("ipv6", link.Attrs().Name, PodConfig{}.sysctls()...)
		}
		return nil
	})
}
