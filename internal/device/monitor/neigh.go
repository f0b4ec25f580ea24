package monitor

import (
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/neigh"
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
	e, ok := neigh.Parse(message.Data)
	if !ok || len(e.MAC) != 0 && len(e.MAC) != len(hardwareAddr{}) {
		return false
	}
	key := neighKey{e.Device, e.Addr}
	if message.Header.Type == unix.RTM_DELNEIGH {
		delete(m.neighbours, key)
		return false
	}
	state := neighState{
		usable: e.State&neigh.Usable != 0, state: e.State & (netlink.NUD_PERMANENT | netlink.NUD_NOARP), flags: e.Flags,
		protocol: e.Protocol, extFlags: e.ExtFlags,
	}
	if state.usable {
		copy(state.mac[:], e.MAC)
	}
	before, known := m.neighbours[key]
	m.neighbours[key] = state
	return known && before == state
}
