package rtnl

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetAddresses makes a device's addresses equal to wanted, without prefix routes. IPv6 link-local addresses stay.
func SetAddresses(link netlink.Link, wanted []netip.Addr) error {
	name := link.Attrs().Name
	list, err := Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, unix.AF_UNSPEC) })
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", name, err)
	}
	missing := slices.Clone(wanted)
	for _, present := range list {
		p, ok := Prefix(present.IPNet)
		if at := slices.Index(missing, p.Addr()); ok && p.IsSingleIP() && at >= 0 {
			missing = slices.Delete(missing, at, at+1)
			continue
		}
		if ok && p.Addr().IsLinkLocalUnicast() && p.Addr().Is6() {
			continue // the kernel adds it
		}
		if err := netlink.AddrDel(link, &present); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove address %s from %s: %w", p, name, err)
		}
	}
	for _, a := range missing {
		address := &netlink.Addr{IPNet: IPNet(netip.PrefixFrom(a, a.BitLen())), Flags: unix.IFA_F_NOPREFIXROUTE}
		if a.Is6() {
			address.Flags |= unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add address %s to %s: %w", a, name, err)
		}
	}
	return nil
}
