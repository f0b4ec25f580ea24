package device

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// LocalAddresses gives the addresses of all devices of this node, sorted and each once: those of loopback devices too, IPv6 link-local ones and
// those of the tunnel device not.
func LocalAddresses() ([]netip.Addr, error) {
	byDevice, err := addressesByDevice()
	if err != nil {
		return nil, err
	}
	if tunnel, err := netlink.LinkByName(TunnelName); err == nil {
		delete(byDevice, tunnel.Attrs().Index)
	} else if !isNotFound(err) {
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
