package neigh

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Manage makes the kernel keep the given addresses on the uplink resolved, with or without traffic (NTF_EXT_MANAGED, Linux 5.16). It
// removes Beeline's other entries on all devices, but not permanent ones.
//
// A kernel without managed entries resolves each address once (NTF_USE); the next call repeats that for addresses that are still
// unresolved.
func Manage(uplink int, addrs []netip.Addr) error {
	entries, err := dump(unix.AF_UNSPEC, 0)
	if err != nil {
		return err
	}
	missing := map[netip.Addr]bool{}
	for _, addr := range addrs {
		missing[addr.Unmap()] = true
	}
	var errs []error
	for _, e := range entries {
		wanted := e.Device == uplink && missing[e.Addr]
		switch {
		case wanted && e.isManaged():
			delete(missing, e.Addr)
		case !wanted && e.Protocol == rtnl.Protocol && e.State&netlink.NUD_PERMANENT == 0:
			errs = append(errs, e.remove())
		}
	}
	for addr := range missing {
		errs = append(errs, manage(uplink, addr))
	}
	return errors.Join(errs...)
}

// isManaged reports whether the entry needs no change: it is Beeline's and managed or resolved, or it needs no resolution.
func (e Entry) isManaged() bool {
	if e.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 {
		return true
	}
	if e.Protocol != rtnl.Protocol {
		return false
	}
	return e.ExtFlags&netlink.NTF_EXT_MANAGED != 0 || e.State&Usable != 0
}

// manage creates or takes over one entry. NTF_EXT_LEARNED exempts it from garbage collection and keeps it over a loss of carrier.
func manage(device int, addr netip.Addr) error {
	e := Entry{
		Device: device, Addr: addr, Protocol: rtnl.Protocol,
		Flags: netlink.NTF_EXT_LEARNED | netlink.NTF_USE, ExtFlags: netlink.NTF_EXT_MANAGED,
	}
	err := e.write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		e.ExtFlags = 0
		err = e.write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	}
	if err != nil {
		return fmt.Errorf("manage neighbour %s on device %d: %w", addr, device, err)
	}
	return nil
}

func (e Entry) remove() error {
	err := Entry{Device: e.Device, Addr: e.Addr}.write(unix.RTM_DELNEIGH, 0)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("remove neighbour %s from device %d: %w", e.Addr, e.Device, err)
}
