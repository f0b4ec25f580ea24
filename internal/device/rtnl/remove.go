package rtnl

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Remove deletes the device with this name and reports whether there was one. It keeps a device of another kind.
func Remove(name, kind string) (removed bool, err error) {
	link, err := netlink.LinkByName(name)
	if IsNotFound(err) || err == nil && link.Type() != kind {
		return false, nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete device %s: %w", name, err)
	}
	return true, nil
}
