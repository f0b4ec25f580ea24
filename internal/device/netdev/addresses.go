package netdev

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// kubeProxyDevice holds the address of every Service while kube-proxy runs in ipvs mode, and until it is deleted.
const kubeProxyDevice = "kube-ipvs0"

// LocalAddresses returns the addresses of all devices of this node, loopback included, sorted and without duplicates. IPv6 link-local
// addresses and those of the tunnel devices and of kube-proxy's are left out.
func LocalAddresses() ([]netip.Addr, error) {
	byDevice, err := addressesByDevice(append(slices.Clone(tunnels), kubeProxyDevice)...)
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, prefixes := range byDevice {
		for _, p := range prefixes {
			if a := p.Addr(); !a.IsLinkLocalUnicast() || a.Is4() {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// Held returns those of the addresses, in their order, that a device of this node has, the tunnel devices excepted.
func Held(addresses []netip.Addr) ([]netip.Addr, error) {
	byDevice, err := addressesByDevice(tunnels...)
	if err != nil {
		return nil, err
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

// AddressesOfOthers returns the addresses within the pod ranges of this node that something else on the node uses: its own devices,
// foreign routes to single addresses, and neighbours on devices to which a foreign route leads. The result is sorted, without
// duplicates.
func AddressesOfOthers(within []netip.Prefix, routes route.Table) ([]netip.Addr, error) {
	all, err := LocalAddresses()
	if err != nil {
		return nil, err
	}
	listed := map[int]bool{}
	for _, r := range routes.Foreign(within) {
		if r.Prefix.IsSingleIP() {
			all = append(all, r.Prefix.Addr())
		}
		if r.Index == 0 || listed[r.Index] {
			continue
		}
		listed[r.Index] = true
		neighbours, err := neigh.List(r.Index)
		if err != nil {
			return nil, err
		}
		for addr := range neighbours {
			all = append(all, addr)
		}
	}
	all = slices.DeleteFunc(all, func(a netip.Addr) bool {
		return !slices.ContainsFunc(within, func(p netip.Prefix) bool { return p.Contains(a) })
	})
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// addressesByDevice returns the addresses of each device by its index, without the devices of these names.
func addressesByDevice(except ...string) (map[int][]netip.Prefix, error) {
	list, err := rtnl.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	byDevice := map[int][]netip.Prefix{}
	for _, address := range list {
		if prefix, ok := rtnl.Prefix(address.IPNet); ok {
			byDevice[address.LinkIndex] = append(byDevice[address.LinkIndex], prefix)
		}
	}
	for _, name := range except {
		if link, err := netlink.LinkByName(name); err == nil {
			delete(byDevice, link.Attrs().Index)
		} else if !rtnl.IsNotFound(err) {
			return nil, fmt.Errorf("find device %s: %w", name, err)
		}
	}
	return byDevice, nil
}
