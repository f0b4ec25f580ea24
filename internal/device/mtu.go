package device

import (
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// minIPv6MTU is the smallest MTU of a device with IPv6 (RFC 8200, section 5): below, the kernel takes its
// addresses away.
const minIPv6MTU = 1280

// ErrPodUnreachable says that the pod's end of a pair could not be entered; the host end is unchanged.
var ErrPodUnreachable = errors.New("the pod's network namespace cannot be entered")

// SetMTU sets the MTU of one device, in bytes.
func SetMTU(index, mtu int) error {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("find device %d: %w", index, err)
	}
	return setMTU(link, mtu)
}

func setMTU(link netlink.Link, mtu int) error {
	if link.Attrs().MTU == mtu {
		return nil
	}
	if err := netlink.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("set MTU of %s to %d: %w", link.Attrs().Name, mtu, err)
	}
	return nil
}

// SetPairMTU sets the MTU of both ends of a pair, in bytes, from outside the pod. netns is where the pod's
// namespace was last seen; it may be empty or out of date: then the namespace is searched by the id that
// the kernel gives it, among processes and mounts. Nothing is changed, and nothing entered, if both ends have
// the MTU already. Raising starts with the host end, lowering with the pod's: no end ever sends what the
// other one would refuse for longer than one system call.
func SetPairMTU(hostIndex int, netns string, mtu int) error {
	host, err := netlink.LinkByIndex(hostIndex)
	if err != nil {
		return fmt.Errorf("find device %d: %w", hostIndex, err)
	}
	pod, err := readPodEnd(host)
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

// setHostMTU sets the MTU of a host end. When it rises over minIPv6MTU the kernel gives the device IPv6 anew,
// with its own settings.
func setHostMTU(host netlink.Link, mtu int) error {
	if err := setMTU(host, mtu); err != nil {
		return err
	}
	if host.Attrs().MTU >= minIPv6MTU || mtu < minIPv6MTU {
		return nil
	}
	// Off first: that takes away the link-local address which it got at once.
	if err := setDevice("ipv6", host.Attrs().Name, setting{"disable_ipv6", "1"}); err != nil {
		return err
	}
	return prepareHostEnd(host)
}

func checkPodMTU(inside ns.NetNS, pod podEnd, mtu int) error {
	if mtu >= minIPv6MTU {
		return nil
	}
	return inside.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByIndex(pod.Index)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", pod.Name, err)
		}
		addresses, err := complete(func() ([]netlink.Addr, error) { return netlink.AddrList(link, unix.AF_INET6) })
		if err != nil {
			return fmt.Errorf("list addresses of %s in the pod: %w", pod.Name, err)
		}
		for _, address := range addresses {
			if !net.IP.IsLinkLocalUnicast(address.IP) {
				return fmt.Errorf("set MTU of %s in the pod to %d: it has the address %s and IPv6 needs %d", pod.Name, mtu, address.IP, minIPv6MTU)
			}
		}
		return nil
	})
}

func setPodMTU(inside ns.NetNS, pod podEnd, mtu int) error {
	return inside.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByIndex(pod.Index)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", pod.Name, err)
		}
		if err := setMTU(link, mtu); err != nil {
			return fmt.Errorf("in the pod: %w", err)
		}
		if pod.MTU < minIPv6MTU && mtu >= minIPv6MTU {
			// The kernel gives the device IPv6 anew, which the pod cannot have had before.
			return setDevice("ipv6", link.Attrs().Name, podSettings(PodConfig{})...)
		}
		return nil
	})
}
