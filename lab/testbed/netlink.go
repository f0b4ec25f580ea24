package testbed

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Netlink runs fn with a netlink socket of the namespace, on the calling thread.
func (n Netns) Netlink(fn func(*netlink.Handle) error) error {
	target, err := netns.GetFromPath(n.Path)
	if err != nil {
		return fmt.Errorf("open %s: %w", n.Path, err)
	}
	defer target.Close()
	h, err := netlink.NewHandleAt(target, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", n.Path, err)
	}
	defer h.Close()
	return fn(h)
}

// WriteSysctl sets a sysctl of the namespace; name is its path below /proc/sys.
func (n Netns) WriteSysctl(name, value string) error {
	return n.Do(func() error { return writeSysctl(name, value) })
}

// ReadSysctl reads a sysctl of the namespace; name is its path below /proc/sys.
func (n Netns) ReadSysctl(name string) (value string, err error) {
	err = n.Do(func() error {
		value, err = readSysctl(name)
		return err
	})
	return value, err
}

// EnableForwarding makes the namespace forward packets.
func (n Netns) EnableForwarding(ipv6 bool) error {
	if err := n.WriteSysctl("net/ipv4/ip_forward", "1"); err != nil || !ipv6 {
		return err
	}
	return n.WriteSysctl("net/ipv6/conf/all/forwarding", "1")
}

// IPNet is the address with its prefix length in the type that package netlink takes.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
