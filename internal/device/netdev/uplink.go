// Package netdev finds the node's devices and addresses.
package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/ipsec"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

// Uplink is the device that carries traffic to other nodes.
type Uplink struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// MTU in bytes, without the link-layer header.
	MTU int
	// Addresses of the device with their on-link prefixes, without IPv6 link-local ones.
	Addresses []netip.Prefix
}

// ErrNoUplink reports that no device qualifies; the error that wraps it names the condition and the devices.
var ErrNoUplink = errors.New("no uplink device")

// FindUplink finds the uplink by name. With "auto" or "" it is the device, up, that holds one of the node's addresses, else the one of
// the IPv4 default route, else the one of the IPv6 default route.
func FindUplink(name string, nodeAddresses []netip.Addr) (Uplink, error) {
	links, addresses, err := devices()
	if err != nil {
		return Uplink{}, err
	}
	if name != "" && name != "auto" {
		link, err := usable(links, name)
		if err != nil {
			return Uplink{}, err
		}
		return uplinkOf(link, addresses), nil
	}
	links = slices.DeleteFunc(links, func(l netlink.Link) bool { return IsTunnel(l.Attrs().Name) })
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.Flags&net.FlagUp != 0 && attrs.Flags&net.FlagLoopback == 0 && holdsOne(addresses[attrs.Index], nodeAddresses) {
			return uplinkOf(link, addresses), hasEthernet(attrs)
		}
	}
	routes, err := route.Read(0)
	if err != nil {
		return Uplink{}, err
	}
	index := routes.DefaultDevice()
	for _, link := range links {
		if attrs := link.Attrs(); attrs.Index == index {
			return uplinkOf(link, addresses), hasEthernet(attrs)
		}
	}
	return Uplink{}, fmt.Errorf("%w: no device that is up holds any of the node's addresses %v and there is no default route; devices: %s",
		ErrNoUplink, nodeAddresses, describe(links))
}

// usable finds the device with a name that an administrator gives.
func usable(links []netlink.Link, name string) (netlink.Link, error) {
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name })
	switch {
	case at < 0:
		return nil, fmt.Errorf("%w: no device named %s; devices: %s", ErrNoUplink, name, describe(links))
	case links[at].Attrs().Flags&net.FlagUp == 0:
		return nil, fmt.Errorf("%w: device %s is down", ErrNoUplink, name)
	}
	return links[at], hasEthernet(links[at].Attrs())
}

// hasEthernet refuses a device whose packets have no Ethernet header, like one of TUN, PPP, GRE or WireGuard: the programs read
// addresses and protocols behind it, and would take them from where a sender may write anything.
func hasEthernet(attrs *netlink.LinkAttrs) error {
	if attrs.EncapType == "ether" || attrs.Flags&net.FlagLoopback != 0 {
		return nil
	}
	return fmt.Errorf("%w: packets of device %s have no Ethernet header (link type %s): choose another one with --uplink", ErrNoUplink, attrs.Name, attrs.EncapType)
}

// IsTunnel reports whether Beeline has made a device with this name for tunnels to other nodes. Such devices hold the node's
// addresses too.
func IsTunnel(name string) bool { return slices.Contains(tunnels, name) }

var tunnels = []string{vxlan.Name, wireguard.Name, ipsec.Name}

// FindByIndex finds a device that may be down.
func FindByIndex(index int) (Uplink, error) {
	links, addresses, err := devices()
	if err != nil {
		return Uplink{}, err
	}
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Index == index })
	if at < 0 {
		return Uplink{}, fmt.Errorf("%w: no device with index %d", ErrNoUplink, index)
	}
	return uplinkOf(links[at], addresses), nil
}

// FindMoreUplinks finds the devices besides the main one that lead to external networks: those with the given names or, for no names or
// "auto", those of default routes. missing says of the others why they are left out; devices of default routes that are down are not
// among them.
func FindMoreUplinks(main Uplink, names []string, routes route.Table) (more []Uplink, missing []error, err error) {
	links, addresses, err := devices()
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 || slices.Equal(names, []string{"auto"}) {
		names = nil
		defaults := routes.DefaultDevices()
		for _, link := range links {
			if attrs := link.Attrs(); attrs.Flags&net.FlagUp != 0 && attrs.Flags&net.FlagLoopback == 0 && slices.Contains(defaults, attrs.Index) && !IsTunnel(attrs.Name) {
				names = append(names, attrs.Name)
			}
		}
	}
	for i, name := range names {
		if name == main.Name || slices.Contains(names[:i], name) {
			continue
		}
		link, err := usable(links, name)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		more = append(more, uplinkOf(link, addresses))
	}
	return more, missing, nil
}

// devices lists the devices, and their addresses by the device's index.
func devices() (links []netlink.Link, addresses map[int][]netip.Prefix, err error) {
	if links, err = rtnl.Dump(netlink.LinkList); err != nil {
		return nil, nil, fmt.Errorf("list devices: %w", err)
	}
	addresses, err = addressesByDevice()
	return links, addresses, err
}

func uplinkOf(link netlink.Link, addresses map[int][]netip.Prefix) Uplink {
	attrs := link.Attrs()
	kept := slices.DeleteFunc(slices.Clone(addresses[attrs.Index]), func(p netip.Prefix) bool {
		return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()
	})
	return Uplink{Name: attrs.Name, Index: attrs.Index, MAC: attrs.HardwareAddr, MTU: attrs.MTU, Addresses: kept}
}

func holdsOne(prefixes []netip.Prefix, wanted []netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool {
		return slices.ContainsFunc(wanted, func(a netip.Addr) bool { return a.Unmap() == p.Addr() })
	})
}

// described is how many devices an error names: a node has one or two more for each of its pods.
const described = 20

func describe(links []netlink.Link) string {
	var names []string
	for i, link := range links {
		if i == described {
			names = append(names, fmt.Sprintf("and %d more", len(links)-i))
			break
		}
		state := "down"
		if link.Attrs().Flags&net.FlagUp != 0 {
			state = "up"
		}
		names = append(names, link.Attrs().Name+" ("+state+")")
	}
	return strings.Join(names, ", ")
}

// SetMTU sets the MTU of a device, in bytes, unless it has it already.
func SetMTU(index, mtu int) error {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("find device %d: %w", index, err)
	}
	if link.Attrs().MTU == mtu {
		return nil
	}
	if err := netlink.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("set MTU of %s to %d: %w", link.Attrs().Name, mtu, err)
	}
	return nil
}

// Name returns the name that a device has now.
func Name(index int) (string, error) {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return "", fmt.Errorf("find device %d: %w", index, err)
	}
	return link.Attrs().Name, nil
}

// Kind returns the kernel's type of a device: "device" for hardware, "veth" or "vlan" for virtual ones.
func Kind(index int) (string, error) {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return "", fmt.Errorf("find device %d: %w", index, err)
	}
	return link.Type(), nil
}
