package device

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ManageNeighbours makes the kernel keep the given addresses on the uplink resolved by itself, traffic or
// not (NTF_EXT_MANAGED, Linux 5.16), and drops those of our entries that are not wanted any more, on
// this and on every other device. Entries that an administrator made permanent are left alone.
//
// Where the kernel refuses managed entries it is asked to resolve the address once (NTF_USE); calling
// ManageNeighbours again asks again for what is not resolved by then.
func ManageNeighbours(uplink int, addrs []netip.Addr) error {
	entries, err := dumpNeighbours(unix.AF_UNSPEC, 0)
	if err != nil {
		return err
	}
	wanted := map[netip.Addr]bool{}
	for _, addr := range addrs {
		wanted[addr.Unmap()] = true
	}
	var errs []error
	for _, entry := range entries {
		here := entry.device == uplink && wanted[entry.addr]
		switch {
		case here && entry.settled():
			delete(wanted, entry.addr)
		case !here && entry.protocol == Protocol && entry.state&netlink.NUD_PERMANENT == 0:
			errs = append(errs, entry.remove())
		}
	}
	for addr := range wanted {
		errs = append(errs, manage(uplink, addr))
	}
	return errors.Join(errs...)
}

// settled tells whether nothing is to be done for an entry that is wanted: it is ours and managed, or it
// needs no resolution.
func (n neighbour) settled() bool {
	if n.state&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 {
		return true
	}
	if n.protocol != Protocol {
		return false
	}
	return n.extFlags&netlink.NTF_EXT_MANAGED != 0 || n.state&usable != 0
}

// manage creates or takes over one entry. NTF_EXT_LEARNED keeps it from being collected as garbage and
// over a loss of carrier.
func manage(device int, addr netip.Addr) error {
	entry := neighbour{
		device: device, addr: addr, protocol: Protocol,
		flags: netlink.NTF_EXT_LEARNED | netlink.NTF_USE, extFlags: netlink.NTF_EXT_MANAGED,
	}
	err := entry.write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		entry.extFlags = 0
		err = entry.write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	}
	if err != nil {
		return fmt.Errorf("manage neighbour %s on device %d: %w", addr, device, err)
	}
	return nil
}

func (n neighbour) remove() error {
	err := neighbour{device: n.device, addr: n.addr}.write(unix.RTM_DELNEIGH, 0)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("remove neighbour %s from device %d: %w", n.addr, n.device, err)
}
