package conflict

import (
	"context"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket sends frames to a link and receives frames that may claim an address.
type socket struct{ fd int }

// open makes a packet socket for ARP or neighbour discovery on a device, which needs CAP_NET_RAW. Its filter is set before it is bound, so
// no other frame is ever queued: a busy uplink would fill the socket.
func open(d Device, a netip.Addr) (*socket, error) {
	if a.Is6() {
		return openFiltered(d, unix.ETH_P_IPV6, neighbourFilter)
	}
	return openFiltered(d, unix.ETH_P_ARP, arpFilter)
}

func openFiltered(d Device, protocol uint16, filter []unix.SockFilter) (*socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	s := &socket{fd}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		s.close()
		return nil, fmt.Errorf("set filter of packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap(protocol), Ifindex: d.Index}); err != nil {
		s.close()
		return nil, fmt.Errorf("bind packet socket to device %d: %w", d.Index, err)
	}
	return s, nil
}

func swap(v uint16) uint16 { return v<<8 | v>>8 }

// close does not wait: the kernel takes many milliseconds until nothing uses a packet socket, and ADD would wait for it.
func (s *socket) close() { go func() { _ = unix.Close(s.fd) }() }

func (s *socket) send(frame []byte) error {
	if _, err := unix.Write(s.fd, frame); err != nil {
		return fmt.Errorf("send frame: %w", err)
	}
	return nil
}

// receive waits for a frame. It returns EAGAIN when the time is up, and looks at the context each 10 ms.
func (s *socket) receive(ctx context.Context, end time.Time) ([]byte, error) {
	const step = 10 * time.Millisecond
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, unix.EAGAIN
		}
		wait := unix.NsecToTimeval(min(left, step).Nanoseconds())
		if wait.Usec == 0 && wait.Sec == 0 {
			wait.Usec = 1 // 0 would wait for ever
		}
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			return nil, fmt.Errorf("set timeout of packet socket: %w", err)
		}
		frame := make([]byte, 256)
		n, err := unix.Read(s.fd, frame)
		switch err {
		case nil:
			return frame[:n], nil
		case unix.EAGAIN, unix.EINTR:
		default:
			return nil, fmt.Errorf("receive frame: %w", err)
		}
	}
}

// Filters in classic BPF: load, compare, accept or drop.
var (
	arpFilter      = []unix.SockFilter{accept}
	arpProbeFilter = []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: arpOperation},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: arpRequest},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arpSender},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: 0}, // 0.0.0.0
		accept,
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	neighbourFilter = []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: ipv6NextHeader},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 4, K: unix.IPPROTO_ICMPV6},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: icmpMessage},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: solicit},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: advertise},
		accept,
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	accept = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff}
)
