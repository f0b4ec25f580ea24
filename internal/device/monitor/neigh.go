package monitor

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// neighKey identifies a neighbour on a device.
type neighKey struct {
	device int
	addr   netip.Addr
}

// neighState is the part of a neighbour entry that the agent uses. mac is zero unless the kernel would send to it; state has only the
// bits that the kernel never sets itself.
type neighState struct {
	mac             hardwareAddr
	usable          bool
	state           uint16
	flags, protocol uint8
	extFlags        uint32
}

// hardwareAddr is the address of an Ethernet device.
type hardwareAddr [6]byte

// repeats reports whether a message about a neighbour has the same state as the previous one. The kernel probes managed neighbours
// all the time and notifies for each reply: with some hundred on a link every few milliseconds.
func (m *monitor) repeats(message syscall.NetlinkMessage) bool {
	key, state, ok := parseNeigh(message.Data)
	if !ok {
		return false
	}
	if message.Header.Type == unix.RTM_DELNEIGH {
		delete(m.neighbours, key)
		return false
	}
	before, known := m.neighbours[key]
	m.neighbours[key] = state
	return known && before == state
}

// parseNeigh reads a message (struct ndmsg); ok is false unless it is an IP neighbour with an Ethernet address or none.
func parseNeigh(message []byte) (key neighKey, state neighState, ok bool) {
	const sizeofNdmsg = 12
	if len(message) < sizeofNdmsg {
		return key, state, false
	}
	key.device = int(binary.NativeEndian.Uint32(message[4:]))
	nud := binary.NativeEndian.Uint16(message[8:])
	state.flags, state.usable, state.state = message[10], nud&neigh.Usable != 0, nud&(netlink.NUD_PERMANENT|netlink.NUD_NOARP)
	ok = true
	err := rtnl.EachAttribute(message[sizeofNdmsg:], func(kind uint16, value []byte) error {
		switch kind {
		case netlink.NDA_DST:
			return rtnl.ReadAddress(value, &key.addr)
		case netlink.NDA_LLADDR:
			if ok = ok && len(value) == len(state.mac); ok && state.usable {
				state.mac = hardwareAddr(value)
			}
		case netlink.NDA_FLAGS_EXT:
			return rtnl.ReadNumber(value, &state.extFlags)
		case netlink.NDA_PROTOCOL:
			if len(value) == 1 {
				state.protocol = value[0]
			}
		}
		return nil
	})
	return key, state, ok && err == nil && key.addr.IsValid()
}
