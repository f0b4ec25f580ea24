// Package encrypted sets up the devices that encrypt packets to other nodes, of WireGuard and of IPsec.
package encrypted

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// SetUp sets the attributes of the device that can change, and sets it up. Before that it calls attach with the device's
// index. mtu is in bytes. addresses are IPv4 addresses of the node: the kernel's loose check of the way back drops all that a
// device without one receives for the node.
//
// The check of the way back is loose: the node's own routes to pods lead to the VXLAN device, whose program redirects to this
// one. Off would not do, since the kernel takes the larger of the device's number and that of all devices, and 1 is strict.
func SetUp(link netlink.Link, mtu int, addresses []netip.Addr, attach func(index int) error) error {
	attrs := link.Attrs()
	if attrs.MTU != mtu {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set MTU of %s to %d: %w", attrs.Name, mtu, err)
		}
	}
	if err := sysctl.SetDevice("ipv4", attrs.Name, "rp_filter=2", "forwarding=1"); err != nil {
		return err
	}
	if err := sysctl.SetDevice("ipv6", attrs.Name, "addr_gen_mode=1", "accept_ra=0", "disable_ipv6=0", "forwarding=1"); err != nil {
		return err
	}
	if err := rtnl.SetAddresses(link, addresses); err != nil {
		return err
	}
	if attrs.Flags&net.FlagUp != 0 {
		return nil
	}
	if err := attach(attrs.Index); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", attrs.Name, err)
	}
	return nil
}
