package neigh

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// proxy is an address that the node answers for on a device.
type proxy struct {
	device int
	addr   netip.Addr
}

// Proxy makes the kernel answer ARP requests and neighbour solicitations on devices, by their index, for exactly these addresses, with
// the device's MAC. It removes Beeline's other proxy entries on all devices and leaves those of others. The kernel answers for an address only while it
// forwards on the device and has a route to the address by another one; see sysctl.EnableProxy for the rest.
func Proxy(wanted map[int][]netip.Addr) (changed int, err error) {
	entries, err := dumpTable(unix.AF_UNSPEC, 0, netlink.NTF_PROXY)
	if err != nil {
		return 0, err
	}
	missing := map[proxy]bool{}
	for device, addrs := range wanted {
		for _, a := range addrs {
			missing[proxy{device, a.Unmap()}] = true
		}
	}
	var errs []error
	for _, e := range entries {
		p := proxy{e.Device, e.Addr}
		if missing[p] {
			delete(missing, p) // ours, or the administrator's
			continue
		}
		if e.Protocol == rtnl.Protocol {
			changed++
			errs = append(errs, p.remove())
		}
	}
	for p := range missing {
		changed++
		errs = append(errs, p.add())
	}
	return changed, errors.Join(errs...)
}

// Proxies gives the device of each address that the kernel answers for because of Proxy or AddProxy.
func Proxies() (map[netip.Addr]int, error) {
	entries, err := dumpTable(unix.AF_UNSPEC, 0, netlink.NTF_PROXY)
	devices := map[netip.Addr]int{}
	for _, e := range entries {
		if e.Protocol == rtnl.Protocol {
			devices[e.Addr] = e.Device
		}
	}
	return devices, err
}

// AddProxy makes the kernel answer for one more address.
func AddProxy(device int, a netip.Addr) error { return proxy{device, a.Unmap()}.add() }

// HasProxy reports whether the kernel answers for an address because of Proxy or AddProxy.
func HasProxy(device int, a netip.Addr) (bool, error) {
	entries, err := dumpTable(unix.AF_UNSPEC, 0, netlink.NTF_PROXY)
	return slices.ContainsFunc(entries, func(e Entry) bool {
		return e.Device == device && e.Addr == a.Unmap() && e.Protocol == rtnl.Protocol
	}), err
}

// RemoveProxy undoes AddProxy.
func RemoveProxy(device int, a netip.Addr) error { return proxy{device, a.Unmap()}.remove() }

func (p proxy) entry() Entry {
	return Entry{Device: p.device, Addr: p.addr, Flags: netlink.NTF_PROXY, Protocol: rtnl.Protocol}
}

func (p proxy) add() error {
	if err := p.entry().write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE); err != nil {
		return fmt.Errorf("answer for %s on device %d: %w", p.addr, p.device, err)
	}
	return nil
}

func (p proxy) remove() error {
	err := p.entry().write(unix.RTM_DELNEIGH, 0)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("stop answering for %s on device %d: %w", p.addr, p.device, err)
}
