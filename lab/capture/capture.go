// Package capture looks at the frames that a device sends, for bytes and addresses that must not be in them. What the
// devices at both ends of a wire send is all that the wire carries. What a device receives is no such proof: packets that
// the kernel has decrypted by a policy of IPsec pass the device a second time, in plaintext.
package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// For is what a capture looks for.
type For struct {
	// Marker are bytes of a payload.
	Marker []byte
	// Ranges are those of addresses.
	Ranges []netip.Prefix
}

// Flow is a kind of packets.
type Flow struct {
	// Protocol is that of IP.
	Protocol int
	// Port is the destination of UDP packets, else 0.
	Port uint16
}

// Seen is what a capture has found.
type Seen struct {
	// Frames is how many frames there were, Marked how many of them contain the marker, and Inside how many have an outer IP
	// header with an address of the ranges.
	Frames, Marked, Inside int
	// Bytes are those of the frames of each flow.
	Bytes map[Flow]int
}

// Capture is one under way.
type Capture struct {
	fd      int
	wanted  For
	seen    Seen
	err     error
	stop    chan struct{}
	stopped chan struct{}
}

const (
	// largest is more bytes than a frame has, one that the device cuts into segments included.
	largest = 1 << 17
	// queue is how many bytes wait to be looked at.
	queue = 64 << 20
	// pollMicroseconds is how long the end of a capture may go unnoticed.
	pollMicroseconds = 20_000
)

// Start captures the frames that a device sends, until Stop. A device with a TCP segmentation offload shows
// segments that are not cut yet.
func Start(in testbed.Netns, device string, wanted For) (*Capture, error) {
	c := &Capture{fd: -1, wanted: wanted, seen: Seen{Bytes: map[Flow]int{}}, stop: make(chan struct{}), stopped: make(chan struct{})}
	if err := c.open(in, device); err != nil {
		if c.fd >= 0 {
			unix.Close(c.fd)
		}
		return nil, fmt.Errorf("capture frames of %s: %w", device, err)
	}
	go c.run()
	return c, nil
}

func (c *Capture) open(in testbed.Netns, device string) (err error) {
	index := 0
	err = in.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(device)
		if err == nil {
			index = link.Attrs().Index
		}
		return err
	})
	if err != nil {
		return err
	}
	err = in.Do(func() (err error) {
		// Protocol 0: nothing arrives before the socket is bound to the device.
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queue); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: pollMicroseconds}); err != nil {
		return err
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
}

// run looks at frames until it is stopped and none is left.
func (c *Capture) run() {
	defer close(c.stopped)
	frame := make([]byte, largest)
	for {
		size, from, err := unix.Recvfrom(c.fd, frame, unix.MSG_TRUNC)
		switch {
		case err == nil && !sent(from):
		case err == nil && size > len(frame):
			c.err = fmt.Errorf("a frame has %d bytes, and %d at most were expected", size, len(frame))
			return
		case err == nil:
			c.look(frame[:size])
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EAGAIN):
			c.err = err
			return
		default:
			select {
			case <-c.stop:
				return
			default:
			}
		}
	}
}

// sent reports whether a frame was sent, by what the kernel says of it.
func sent(from unix.Sockaddr) bool {
	link, ok := from.(*unix.SockaddrLinklayer)
	return ok && link.Pkttype == unix.PACKET_OUTGOING
}

// Stop ends the capture. It returns an error if frames were missed.
func (c *Capture) Stop() (Seen, error) {
	close(c.stop)
	<-c.stopped
	defer unix.Close(c.fd)
	if c.err != nil {
		return c.seen, fmt.Errorf("capture: %w", c.err)
	}
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return c.seen, fmt.Errorf("capture: read what was missed: %w", err)
	}
	if stats.Drops > 0 {
		return c.seen, fmt.Errorf("capture: %d of %d frames were missed", stats.Drops, stats.Packets)
	}
	return c.seen, nil
}

// Lengths of headers in bytes.
const (
	ethernet = 14
	ipv4     = 20
	ipv6     = 40
)

// look counts a frame.
func (c *Capture) look(frame []byte) {
	c.seen.Frames++
	if len(c.wanted.Marker) > 0 && bytes.Contains(frame, c.wanted.Marker) {
		c.seen.Marked++
	}
	if len(frame) < ethernet {
		return
	}
	packet := frame[ethernet:]
	var source, destination netip.Addr
	var protocol, header int
	switch kind := binary.BigEndian.Uint16(frame[12:]); {
	case kind == unix.ETH_P_IP && len(packet) >= ipv4:
		source, destination = netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:]))
		protocol, header = int(packet[9]), int(packet[0]&0xf)*4
	case kind == unix.ETH_P_IPV6 && len(packet) >= ipv6:
		source, destination = netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:]))
		protocol, header = int(packet[6]), ipv6
	default:
		return
	}
	if slices.ContainsFunc(c.wanted.Ranges, func(r netip.Prefix) bool { return r.Contains(source) || r.Contains(destination) }) {
		c.seen.Inside++
	}
	flow := Flow{Protocol: protocol}
	if protocol == unix.IPPROTO_UDP && len(packet) >= header+4 {
		flow.Port = binary.BigEndian.Uint16(packet[header+2:])
	}
	c.seen.Bytes[flow] += len(frame)
}
