package encrypted

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// FindOrAdd gives the device with the name of link, of whatever type it is, or adds link and says that it did.
func FindOrAdd(link netlink.Link) (found netlink.Link, made bool, err error) {
	name := link.Attrs().Name
	if found, err = netlink.LinkByName(name); err == nil {
		return found, false, nil
	}
	if !rtnl.IsNotFound(err) {
		return nil, false, fmt.Errorf("find device %s: %w", name, err)
	}
	if err := netlink.LinkAdd(link); err != nil {
		return nil, false, fmt.Errorf("create device %s: %w", name, err)
	}
	if found, err = netlink.LinkByName(name); err != nil {
		return nil, false, fmt.Errorf("find device %s after its creation: %w", name, err)
	}
	return found, true, nil
}
