package device

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// neighbour is one entry of the kernel's neighbour tables. netlink.Neigh has no protocol, which is how we
// know our own entries, so the messages are read and written here (linux/neighbour.h).
type neighbour struct {
	device   int
	addr     netip.Addr
	mac      net.HardwareAddr
	state    uint16 // NUD_*
	flags    uint8  // NTF_*
	extFlags uint32 // NTF_EXT_*
	protocol uint8
}

// usable are the states in which the kernel sends to the link-layer address of an entry.
const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP

// SetNeighbour installs a permanent neighbour entry on a device: addr is at mac, and nobody is ever
// asked. It goes away with the device.
func SetNeighbour(device int, addr netip.Addr, mac net.HardwareAddr) error {
	return setPermanent(device, addr, mac, 0)
}

// setGateway is SetNeighbour for a gateway. Every half a minute Linux forgets what packet too big has told it of paths through a
// gateway of IPv6 whose entry does not call it a router (rt6_age_examine_exception).
func setGateway(device int, addr netip.Addr, mac net.HardwareAddr) error {
	var flags uint8
	if addr.Unmap().Is6() {
		flags = netlink.NTF_ROUTER
	}
	return setPermanent(device, addr, mac, flags)
}

func setPermanent(device int, addr netip.Addr, mac net.HardwareAddr, flags uint8) error {
	entry := neighbour{device: device, addr: addr.Unmap(), mac: mac, state: netlink.NUD_PERMANENT, flags: flags, protocol: Protocol}
	if err := entry.write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE); err != nil {
		return fmt.Errorf("set neighbour %s at %s on device %d: %w", addr, mac, device, err)
	}
	return nil
}

// Neighbours returns the link-layer addresses of the neighbours on a device to which the kernel would send
// now: entries that failed or are still being resolved are left out.
func Neighbours(device int) (map[netip.Addr]net.HardwareAddr, error) {
	entries, err := dumpNeighbours(unix.AF_UNSPEC, device)
	if err != nil {
		return nil, err
	}
	found := make(map[netip.Addr]net.HardwareAddr, len(entries))
	for _, entry := range entries {
		if entry.state&usable != 0 && len(entry.mac) == 6 && !entry.addr.IsMulticast() {
			found[entry.addr] = entry.mac
		}
	}
	return found, nil
}

// write sends one entry as the given message type.
func (n neighbour) write(message, flags int) error {
	request := nl.NewNetlinkRequest(message, flags|unix.NLM_F_ACK)
	request.AddData(&netlink.Ndmsg{
		Family: uint8(familyOf(n.addr)), Index: uint32(n.device), State: n.state, Flags: n.flags, Type: unix.RTN_UNICAST,
	})
	request.AddData(nl.NewRtAttr(netlink.NDA_DST, n.addr.AsSlice()))
	if len(n.mac) > 0 {
		request.AddData(nl.NewRtAttr(netlink.NDA_LLADDR, n.mac))
	}
	if n.extFlags != 0 {
		request.AddData(nl.NewRtAttr(netlink.NDA_FLAGS_EXT, nl.Uint32Attr(n.extFlags)))
	}
	if n.protocol != 0 {
		request.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{n.protocol}))
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// dumpNeighbours reads the ARP and ND tables, of one device unless device is 0.
func dumpNeighbours(family, device int) ([]neighbour, error) {
	entries, err := complete(func() ([]neighbour, error) {
		request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		request.AddData(&netlink.Ndmsg{Family: uint8(family)})
		if device != 0 {
			request.AddData(nl.NewRtAttr(netlink.NDA_IFINDEX, nl.Uint32Attr(uint32(device))))
		}
		messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		if err != nil {
			return nil, err
		}
		var entries []neighbour
		for _, message := range messages {
			entry, ok := parseNeighbour(message)
			if ok && (device == 0 || entry.device == device) {
				entries = append(entries, entry)
			}
		}
		return entries, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	return entries, nil
}

// parseNeighbour reads the payload of an RTM_NEWNEIGH message: struct ndmsg, then attributes. ok is false
// for what is no IPv4 or IPv6 neighbour.
func parseNeighbour(message []byte) (entry neighbour, ok bool) {
	const sizeofNdmsg = 12
	if len(message) < sizeofNdmsg || message[0] != unix.AF_INET && message[0] != unix.AF_INET6 {
		return neighbour{}, false
	}
	attributes, err := nl.ParseRouteAttr(message[sizeofNdmsg:])
	if err != nil {
		return neighbour{}, false
	}
	entry.device = int(binary.NativeEndian.Uint32(message[4:]))
	entry.state = binary.NativeEndian.Uint16(message[8:])
	entry.flags = message[10]
	for _, attribute := range attributes {
		switch value := attribute.Value; attribute.Attr.Type {
		case netlink.NDA_DST:
			entry.addr, ok = addrOf(value)
		case netlink.NDA_LLADDR:
			entry.mac = net.HardwareAddr(value)
		case netlink.NDA_FLAGS_EXT:
			if len(value) == 4 {
				entry.extFlags = binary.NativeEndian.Uint32(value)
			}
		case netlink.NDA_PROTOCOL:
			if len(value) == 1 {
				entry.protocol = value[0]
			}
		}
	}
	return entry, ok
}
