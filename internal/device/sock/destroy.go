// Package sock acts on sockets and on the network namespace they belong to.
package sock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// DestroyUDP destroys the UDP sockets of the calling thread's network namespace that are connected to one of the peers, and returns
// their number (SOCK_DESTROY, Linux 4.9, with CONFIG_INET_DIAG_DESTROY). Their owners get ECONNABORTED. Addresses in peers must not
// be IPv4-mapped.
func DestroyUDP(peers map[netip.AddrPort]bool) (destroyed int, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagUDP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // a socket that the interrupted dump misses is newer than the peer's removal
			return destroyed, fmt.Errorf("list UDP sockets: %w", err)
		}
		for _, s := range sockets {
			to, ok := netip.AddrFromSlice(s.ID.Destination)
			if !ok || !peers[netip.AddrPortFrom(to.Unmap(), s.ID.DestinationPort)] {
				continue
			}
			switch err := destroyUDP(family, s.ID); {
			case err == nil:
				destroyed++
			case !errors.Is(err, unix.ENOENT): // closed meanwhile
				return destroyed, fmt.Errorf("destroy UDP socket with peer %s: %w", to, err)
			}
		}
	}
	return destroyed, nil
}

func destroyUDP(family uint8, id netlink.SocketID) error {
	request := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	request.AddData(socketRequest{family, id})
	_, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
	return err
}

// socketRequest is struct inet_diag_req_v2 (linux/inet_diag.h) for one UDP socket.
type socketRequest struct {
	family uint8
	id     netlink.SocketID
}

// Len is part of nl.NetlinkRequestData.
func (r socketRequest) Len() int { return len(r.Serialize()) }

// Serialize is part of nl.NetlinkRequestData.
func (r socketRequest) Serialize() []byte {
	b := []byte{r.family, unix.IPPROTO_UDP, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // every state
	b = binary.BigEndian.AppendUint16(b, r.id.SourcePort)
	b = binary.BigEndian.AppendUint16(b, r.id.DestinationPort)
	for _, ip := range [][]byte{r.id.Source, r.id.Destination} {
		var a [16]byte // IPv4 takes the first four
		if r.family == unix.AF_INET {
			ip = ip[len(ip)-4:] // the library gives both families 16 bytes
		}
		copy(a[:], ip)
		b = append(b, a[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, r.id.Interface)
	b = binary.NativeEndian.AppendUint32(b, r.id.Cookie[0])
	return binary.NativeEndian.AppendUint32(b, r.id.Cookie[1])
}
