package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Uplink is the device that carries traffic to other nodes.
type Uplink struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// MTU in bytes, without the link-layer header.
	MTU int
	// Addresses of the device with their on-link prefixes, IPv6 link-local ones left out.
	Addresses []netip.Prefix
}

// ErrNoUplink says that no device fits; the error that wraps it names what was looked for and what is there.
var ErrNoUplink = errors.New("no uplink device")

// FindUplink finds the uplink by name. With "auto" or "" it is the device, up, that holds one of the
// node's addresses, else the one of the IPv4 default route, else the one of the IPv6 default route.
func FindUplink(name string, nodeAddresses []netip.Addr) (Uplink, error) {
	links, err := complete(netlink.LinkList)
	if err != nil {
		return Uplink{}, fmt.Errorf("list devices: %w", err)
	}
	addresses, err := addressesByDevice()
	if err != nil {
		return Uplink{}, err
	}
	auto := name == "" || name == "auto"
	// It holds the node's addresses too, and is no way to the other end of itself.
	links = slices.DeleteFunc(links, func(l netlink.Link) bool { return auto && l.Attrs().Name == TunnelName })
	for _, link := range links {
		attrs := link.Attrs()
		if !auto && attrs.Name == name {
			if attrs.Flags&net.FlagUp == 0 {
				return Uplink{}, fmt.Errorf("%w: device %s is down", ErrNoUplink, name)
			}
			return uplink(link, addresses), nil
		}
		if auto && attrs.Flags&net.FlagUp != 0 && attrs.Flags&net.FlagLoopback == 0 && holdsOne(addresses[attrs.Index], nodeAddresses) {
			return uplink(link, addresses), nil
		}
	}
	if !auto {
		return Uplink{}, fmt.Errorf("%w: no device named %s; there are: %s", ErrNoUplink, name, describe(links))
	}
	index, err := defaultRouteDevice()
	if err != nil {
		return Uplink{}, err
	}
	for _, link := range links {
		if link.Attrs().Index == index {
			return uplink(link, addresses), nil
		}
	}
	return Uplink{}, fmt.Errorf("%w: no device that is up holds any of the node's addresses %v and there is no default route; there are: %s",
		ErrNoUplink, nodeAddresses, describe(links))
}

func uplink(link netlink.Link, addresses map[int][]netip.Prefix) Uplink {
	attrs := link.Attrs()
	kept := slices.DeleteFunc(slices.Clone(addresses[attrs.Index]), func(p netip.Prefix) bool {
		return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()
	})
	return Uplink{Name: attrs.Name, Index: attrs.Index, MAC: attrs.HardwareAddr, MTU: attrs.MTU, Addresses: kept}
}

func addressesByDevice() (map[int][]netip.Prefix, error) {
	list, err := complete(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	byDevice := map[int][]netip.Prefix{}
	for _, address := range list {
		if prefix, ok := prefixOf(address.IPNet); ok {
			byDevice[address.LinkIndex] = append(byDevice[address.LinkIndex], prefix)
		}
	}
	return byDevice, nil
}

// Held gives those of the addresses, in their order, that a device of this node holds, the tunnel device aside.
func Held(addresses []netip.Addr) ([]netip.Addr, error) {
	byDevice, err := addressesByDevice()
	if err != nil {
		return nil, err
	}
	tunnel, err := netlink.LinkByName(TunnelName)
	if err == nil {
		delete(byDevice, tunnel.Attrs().Index)
	} else if !isNotFound(err) {
		return nil, fmt.Errorf("find device %s: %w", TunnelName, err)
	}
	var held []netip.Addr
	for _, a := range addresses {
		for _, prefixes := range byDevice {
			if holdsOne(prefixes, []netip.Addr{a}) {
				held = append(held, a)
				break
			}
		}
	}
	return held, nil
}

func holdsOne(prefixes []netip.Prefix, wanted []netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool {
		return slices.ContainsFunc(wanted, func(a netip.Addr) bool { return a.Unmap() == p.Addr() })
	})
}

// defaultRouteDevice returns the index of the device of the best default route in table main, 0 if none.
func defaultRouteDevice() (int, error) {
	routes, err := ReadRoutes(0)
	if err != nil {
		return 0, err
	}
	var best *listedRoute
	for _, route := range routes.defaultRoutes() {
		if best == nil || route.Prefix.Addr().Is4() == best.Prefix.Addr().Is4() && route.metric < best.metric {
			best = &route
		}
	}
	switch {
	case best == nil:
		return 0, nil
	case len(best.hops) > 0:
		return best.hops[0], nil
	}
	return best.Device, nil
}

func describe(links []netlink.Link) string {
	var names []string
	for _, link := range links {
		state := "down"
		if link.Attrs().Flags&net.FlagUp != 0 {
			state = "up"
		}
		names = append(names, link.Attrs().Name+" ("+state+")")
	}
	return strings.Join(names, ", ")
}

// Kind tells what sort of device has that index: the kind of a virtual one ("veth", "vlan"), "device" for a physical one.
func Kind(index int) (string, error) {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return "", fmt.Errorf("ask for index %d: %w", index, err)
	}
	return link.Type(), nil
}
