package device

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// kubeProxyDevice has every address of every Service while kube-proxy runs in ipvs mode, and after it until somebody removes it.
const kubeProxyDevice = "kube-ipvs0"

// LocalAddresses gives the addresses of all devices of this node, sorted and each once: those of loopback devices too, IPv6 link-local ones and
// those of the tunnel device and of kube-proxy's not.
func LocalAddresses() ([]netip.Addr, error) {
	byDevice, err := addressesByDevice()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{TunnelName, kubeProxyDevice} {
		if link, err := netlink.LinkByName(name); err == nil {
			delete(byDevice, link.Attrs().Index)
		} else if !isNotFound(err) {
			return nil, fmt.Errorf("find device %s: %w", name, err)
		}
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
