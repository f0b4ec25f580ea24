// Package neigh reads and writes the kernel's neighbour tables (ARP and ND).
package neigh

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Entry is one neighbour entry. netlink.Neigh lacks NDA_PROTOCOL, which marks Beeline's entries, so this package encodes and decodes
// the messages (linux/neighbour.h) itself.
type Entry struct {
	Device   int
	Addr     netip.Addr
	MAC      net.HardwareAddr
	State    uint16 // NUD_*
	Flags    uint8  // NTF_*
	ExtFlags uint32 // NTF_EXT_*
	Protocol uint8
}

// Usable are the states in which the kernel sends to the link-layer address of an entry.
const Usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP

// SetPermanent sets a permanent entry on a device: the kernel never resolves addr. It goes away with the device.
func SetPermanent(device int, addr netip.Addr, mac net.HardwareAddr) error {
	return setPermanent(device, addr, mac, 0)
}

// SetRouter is SetPermanent for a gateway. Every 30 s Linux drops the path MTUs that it learned through an IPv6 gateway whose entry
// lacks NTF_ROUTER (rt6_age_examine_exception).
func SetRouter(device int, addr netip.Addr, mac net.HardwareAddr) error {
	var flags uint8
	if addr.Unmap().Is6() {
		flags = netlink.NTF_ROUTER
	}
	return setPermanent(device, addr, mac, flags)
}

func setPermanent(device int, addr netip.Addr, mac net.HardwareAddr, flags uint8) error {
	e := Entry{Device: device, Addr: addr.Unmap(), MAC: mac, State: netlink.NUD_PERMANENT, Flags: flags, Protocol: rtnl.Protocol}
	if err := e.write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE); err != nil {
		return fmt.Errorf("set neighbour %s at %s on device %d: %w", addr, mac, device, err)
	}
	return nil
}

// HasPermanent reports whether a device has a permanent entry for addr with this link-layer address.
func HasPermanent(device int, addr netip.Addr, mac net.HardwareAddr) (bool, error) {
	entries, err := dump(rtnl.Family(addr), device)
	return slices.ContainsFunc(entries, func(e Entry) bool {
		return e.Addr == addr && e.State&netlink.NUD_PERMANENT != 0 && bytes.Equal(e.MAC, mac)
	}), err
}

// List returns the link-layer addresses of the unicast neighbours on a device in a usable state: failed and incomplete entries are
// left out.
func List(device int) (map[netip.Addr]net.HardwareAddr, error) {
	entries, err := dump(unix.AF_UNSPEC, device)
	if err != nil {
		return nil, err
	}
	macs := make(map[netip.Addr]net.HardwareAddr, len(entries))
	for _, e := range entries {
		if e.State&Usable != 0 && len(e.MAC) == 6 && !e.Addr.IsMulticast() {
			macs[e.Addr] = e.MAC
		}
	}
	return macs, nil
}

// write sends one entry as the given message type.
func (e Entry) write(message, flags int) error {
	request := nl.NewNetlinkRequest(message, flags|unix.NLM_F_ACK)
	request.AddData(&netlink.Ndmsg{
		Family: uint8(rtnl.Family(e.Addr)), Index: uint32(e.Device), State: e.State, Flags: e.Flags, Type: unix.RTN_UNICAST,
	})
	request.AddData(nl.NewRtAttr(netlink.NDA_DST, e.Addr.AsSlice()))
	if len(e.MAC) > 0 {
		request.AddData(nl.NewRtAttr(netlink.NDA_LLADDR, e.MAC))
	}
	if e.ExtFlags != 0 {
		request.AddData(nl.NewRtAttr(netlink.NDA_FLAGS_EXT, nl.Uint32Attr(e.ExtFlags)))
	}
	if e.Protocol != 0 {
		request.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{e.Protocol}))
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// dump reads the ARP and ND tables; device 0 means all devices.
func dump(family, device int) ([]Entry, error) { return dumpTable(family, device, 0) }

// dumpTable reads the table of neighbours, or with NTF_PROXY that of proxied addresses.
func dumpTable(family, device int, flags uint8) ([]Entry, error) {
	entries, err := rtnl.Dump(func() ([]Entry, error) {
		request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		request.AddData(&netlink.Ndmsg{Family: uint8(family), Flags: flags})
		if device != 0 {
			request.AddData(nl.NewRtAttr(netlink.NDA_IFINDEX, nl.Uint32Attr(uint32(device))))
		}
		messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		if err != nil {
			return nil, err
		}
		var entries []Entry
		for _, message := range messages {
			e, ok := Parse(message)
			if ok && (device == 0 || e.Device == device) {
				entries = append(entries, e)
			}
		}
		return entries, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	return entries, nil
}

// Parse reads the payload of an RTM_NEWNEIGH or RTM_DELNEIGH message: struct ndmsg, then attributes. The entry refers to it. ok is
// false unless it is an IPv4 or IPv6 neighbour.
func Parse(message []byte) (e Entry, ok bool) {
	const sizeofNdmsg = 12
	if len(message) < sizeofNdmsg || message[0] != unix.AF_INET && message[0] != unix.AF_INET6 {
		return e, false
	}
	e.Device = int(binary.NativeEndian.Uint32(message[4:]))
	e.State = binary.NativeEndian.Uint16(message[8:])
	e.Flags = message[10]
	err := rtnl.EachAttribute(message[sizeofNdmsg:], func(kind uint16, value []byte) error {
		switch kind {
		case netlink.NDA_DST:
			return rtnl.ReadAddress(value, &e.Addr)
		case netlink.NDA_LLADDR:
			e.MAC = value
		case netlink.NDA_FLAGS_EXT:
			return rtnl.ReadNumber(value, &e.ExtFlags)
		case netlink.NDA_PROTOCOL:
			if len(value) == 1 {
				e.Protocol = value[0]
			}
		}
		return nil
	})
	return e, err == nil && e.Addr.IsValid()
}
