package device

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// neighbourAt is a neighbour on a device.
type neighbourAt struct {
	device int
	addr   netip.Addr
}

// neighbourSaid is what anybody here goes by. mac is zero unless the kernel would send to it, and of the states only those count that the kernel never gives.
type neighbourSaid struct {
	mac             hardwareAddr
	usable          bool
	state           uint16
	flags, protocol uint8
	extFlags        uint32
}

// hardwareAddr is the address of an Ethernet device.
type hardwareAddr [6]byte

// saysAgain tells whether a message about a neighbour says what the one before has said. The kernel asks those that it manages again and again and tells of
// each answer: of some hundred on a link one every few milliseconds.
func (m *monitor) saysAgain(message syscall.NetlinkMessage) bool {
	at, said, ok := readNeighbour(message.Data)
	if !ok {
		return false
	}
	if message.Header.Type == unix.RTM_DELNEIGH {
		delete(m.neighbours, at)
		return false
	}
	before, known := m.neighbours[at]
	m.neighbours[at] = said
	return known && before == said
}

// readNeighbour reads a message (struct ndmsg); ok is false for what is no neighbour of IP with an Ethernet address, or none at all.
func readNeighbour(message []byte) (at neighbourAt, said neighbourSaid, ok bool) {
	const sizeofNdmsg = 12
	if len(message) < sizeofNdmsg {
		return at, said, false
	}
	at.device = int(binary.NativeEndian.Uint32(message[4:]))
	state := binary.NativeEndian.Uint16(message[8:])
	said.flags, said.usable, said.state = message[10], state&usable != 0, state&(netlink.NUD_PERMANENT|netlink.NUD_NOARP)
	ok = true
	err := eachAttribute(message[sizeofNdmsg:], func(kind uint16, value []byte) error {
		switch kind {
		case netlink.NDA_DST:
			return readAddress(value, &at.addr)
		case netlink.NDA_LLADDR:
			if ok = ok && len(value) == len(said.mac); ok && said.usable {
				said.mac = hardwareAddr(value)
			}
		case netlink.NDA_FLAGS_EXT:
			return readNumber(value, &said.extFlags)
		case netlink.NDA_PROTOCOL:
			if len(value) == 1 {
				said.protocol = value[0]
			}
		}
		return nil
	})
	return at, said, ok && err == nil && at.addr.IsValid()
}
