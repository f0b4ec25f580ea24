package network

import (
	"errors"
	"fmt"
	"sync"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The probes make a device of the kind once, in a namespace that ends with the probe.
var (
	bridgeUnsupported = sync.OnceValue(func() string {
		return probeDevice("bridges", "CONFIG_BRIDGE", func(attrs netlink.LinkAttrs) netlink.Link {
			return &netlink.Bridge{LinkAttrs: attrs}
		})
	})
	macvlanUnsupported = sync.OnceValue(func() string {
		return probeDevice("macvlan devices", "CONFIG_MACVLAN", func(attrs netlink.LinkAttrs) netlink.Link {
			return &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}
		})
	})
	vxlanUnsupported = sync.OnceValue(func() string {
		return probeDevice("VXLAN devices", "CONFIG_VXLAN", func(attrs netlink.LinkAttrs) netlink.Link {
			return &netlink.Vxlan{LinkAttrs: attrs, VxlanId: vxlanID, Port: vxlanPort}
		})
	})
)

// probeDevice says that the kernel lacks a kind of device. It is empty if the kernel has it, and without root, which
// the lab itself reports.
func probeDevice(kind, option string, device func(netlink.LinkAttrs) netlink.Link) string {
	temporary, err := ns.TempNetNS()
	if err != nil {
		return ""
	}
	defer temporary.Close()
	err = temporary.Do(func(ns.NetNS) error {
		parent := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}
		if err := netlink.LinkAdd(parent); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = "probe", parent.Attrs().Index
		return netlink.LinkAdd(device(attrs))
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Sprintf("not on this kernel: %s (%s)", kind, option)
	}
	return ""
}
