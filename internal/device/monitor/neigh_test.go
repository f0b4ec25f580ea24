package monitor

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// A message about a neighbour is a change only if the state that the agent uses differs: not for another probe or reply.
func TestRepeatedNeighbourIsNoChange(t *testing.T) {
	one, two := []byte{2, 0, 0, 0, 0, 1}, []byte{2, 0, 0, 0, 0, 2}
	message := func(kind uint16, device int, state uint16, mac []byte, extFlags uint32) syscall.NetlinkMessage {
		data := (&netlink.Ndmsg{Family: unix.AF_INET, Index: uint32(device), State: state, Flags: netlink.NTF_EXT_LEARNED}).Serialize()
		data = append(data, nl.NewRtAttr(netlink.NDA_DST, netip.MustParseAddr("192.0.2.7").AsSlice()).Serialize()...)
		if mac != nil {
			data = append(data, nl.NewRtAttr(netlink.NDA_LLADDR, mac).Serialize()...)
		}
		data = append(data, nl.NewRtAttr(netlink.NDA_FLAGS_EXT, binary.NativeEndian.AppendUint32(nil, extFlags)).Serialize()...)
		data = append(data, nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{rtnl.Protocol}).Serialize()...)
		return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}
	}
	const uplink, managed = 6, netlink.NTF_EXT_MANAGED
	m := &monitor{hostEnds: map[int]bool{5: true}, neighbours: map[neighKey]neighState{}}
	for _, step := range []struct {
		what    string
		message syscall.NetlinkMessage
		changes bool
	}{
		{"the first", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_REACHABLE, one, managed), true},
		{"probed again", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_PROBE, one, managed), false},
		{"replies again", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_REACHABLE, one, managed), false},
		{"another address", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_REACHABLE, two, managed), true},
		{"stops replying", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_FAILED, nil, managed), true},
		{"probed in vain", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_INCOMPLETE, nil, managed), false},
		{"replies once more", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_REACHABLE, two, managed), true},
		{"no longer managed", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_REACHABLE, two, 0), true},
		{"made permanent", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_PERMANENT, two, 0), true},
		{"on another device", message(unix.RTM_NEWNEIGH, uplink+1, netlink.NUD_PERMANENT, two, 0), true},
		{"gone", message(unix.RTM_DELNEIGH, uplink, netlink.NUD_PERMANENT, two, 0), true},
		{"set again", message(unix.RTM_NEWNEIGH, uplink, netlink.NUD_PERMANENT, two, 0), true},
		{"a pod's", message(unix.RTM_NEWNEIGH, 5, netlink.NUD_PERMANENT, two, 0), true},
		{"a pod's again", message(unix.RTM_NEWNEIGH, 5, netlink.NUD_PERMANENT, two, 0), true},
		{"no Ethernet address", message(unix.RTM_NEWNEIGH, 8, netlink.NUD_NOARP, two[:4], 0), true},
		{"the same again", message(unix.RTM_NEWNEIGH, 8, netlink.NUD_NOARP, two[:4], 0), true},
	} {
		if change := m.changeOf(step.message); change.any() != step.changes {
			t.Errorf("%s: %+v", step.what, change)
		}
	}
}
