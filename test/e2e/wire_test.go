package e2e

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// changeLink changes a device of a namespace.
func changeLink(t *testing.T, netns testbed.Netns, name string, change func(*netlink.Handle, netlink.Link) error) {
	t.Helper()
	err := netns.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return change(h, link)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// setUplink sets the node's uplink up or down.
func setUplink(t *testing.T, n *node, up bool) {
	t.Helper()
	changeLink(t, n.Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error {
		if up {
			return h.LinkSetUp(l)
		}
		return h.LinkSetDown(l)
	})
}

// setUplinkMTU changes the MTU of the node's uplink.
func setUplinkMTU(t *testing.T, n *node, mtu int) {
	t.Helper()
	changeLink(t, n.Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetMTU(l, mtu) })
}

// flushAddresses removes the IPv4 addresses of a pod's device.
func flushAddresses(t *testing.T, netns testbed.Netns) {
	t.Helper()
	changeLink(t, netns, podInterface, func(h *netlink.Handle, l netlink.Link) error {
		addresses, err := h.AddrList(l, netlink.FAMILY_V4)
		for i := range addresses {
			if err := h.AddrDel(l, &addresses[i]); err != nil {
				return err
			}
		}
		return err
	})
}

// deviceMTU reads the MTU of a device.
func deviceMTU(netns testbed.Netns, name string) (mtu int, err error) {
	err = netns.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err == nil {
			mtu = link.Attrs().MTU
		}
		return err
	})
	return mtu, err
}
