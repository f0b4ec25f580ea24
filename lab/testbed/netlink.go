package testbed

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func inNetns(path string) Place { return Place{Netns: path, CPU: AnyCPU} }

// Netlink runs fn with a netlink socket of the place's namespace, on the calling thread.
func (p Place) Netlink(fn func(*netlink.Handle) error) error {
	target, err := netns.GetFromPath(p.Netns)
	if err != nil {
		return fmt.Errorf("open %s: %w", p.Netns, err)
	}
	defer target.Close()
	h, err := netlink.NewHandleAt(target, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", p.Netns, err)
	}
	defer h.Close()
	return fn(h)
}

// WriteSysctl sets a sysctl of the place's namespace; name is its path below /proc/sys.
func (p Place) WriteSysctl(name, value string) error {
	return p.Do(func() error { return writeSysctl(name, value) })
}

// ReadSysctl reads a sysctl of the place's namespace; name is its path below /proc/sys.
func (p Place) ReadSysctl(name string) (value string, err error) {
	err = p.Do(func() error {
		value, err = readSysctl(name)
		return err
	})
	return value, err
}

// EnableForwarding makes the place's namespace forward packets.
func (p Place) EnableForwarding(ipv6 bool) error {
	if err := p.WriteSysctl("net/ipv4/ip_forward", "1"); err != nil || !ipv6 {
		return err
	}
	return p.WriteSysctl("net/ipv6/conf/all/forwarding", "1")
}

// IPNet is the address with its prefix length in the type that package netlink takes.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
