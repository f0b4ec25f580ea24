package capture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/capture"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Marker is in what tests send between pods. Where nodes encrypt, no frame of the wire has it.
const Marker = "p0dsText"

const (
	vxlanPort     = 4789
	wireGuardPort = 28781
)

// Wire looks for plaintext at places of a wire.
type Wire struct {
	// ranges are those of pods' addresses, outside the MACs of machines whose packets are not encrypted.
	ranges  []netip.Prefix
	outside []net.HardwareAddr
	stops   []func()

	mu        sync.Mutex
	plain     []Packet
	encrypted int
}

// Packet is one in plaintext.
type Packet struct {
	// Why it is plaintext of a pod.
	Why                 string
	Source, Destination netip.Addr
	// Protocol is that of the outer IP header, Frame the first bytes of the frame.
	Protocol byte
	Frame    []byte
}

func (p Packet) String() string {
	return fmt.Sprintf("%s to %s, protocol %d (%s): %x", p.Source, p.Destination, p.Protocol, p.Why, p.Frame)
}

// NewWire returns one that looks for packets with addresses in these ranges, with Marker, and of VXLAN, in frames between
// nodes: those from and to the MACs of machines outside are left out.
func NewWire(ranges []netip.Prefix, outside ...net.HardwareAddr) *Wire {
	return &Wire{ranges: ranges, outside: outside}
}

// Watch starts to look at the frames of a device. What it receives from devices that are there now, in its own network
// namespace, does not come by the wire: programs deliver to macvlan devices by having their parent receive packets.
func (w *Wire) Watch(netns testbed.Netns, device string) error {
	var own []net.HardwareAddr
	err := netns.Do(func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			if len(l.HardwareAddr) > 0 {
				own = append(own, l.HardwareAddr)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list devices of %s: %w", netns.Path, err)
	}
	return w.watch(netns, device, func(frame []byte, sent bool) {
		inside := func(m net.HardwareAddr) bool { return len(frame) >= 12 && bytes.Equal(frame[6:12], m) }
		if sent || !slices.ContainsFunc(own, inside) {
			w.look(frame)
		}
	})
}

// WatchSent starts to look at the frames that a device sends only: what it receives others forge.
func (w *Wire) WatchSent(netns testbed.Netns, device string) error {
	return w.watch(netns, device, func(frame []byte, sent bool) {
		if sent {
			w.look(frame)
		}
	})
}

func (w *Wire) watch(netns testbed.Netns, device string, see func([]byte, bool)) error {
	stop, err := capture.Copies(netns, device, see)
	if err != nil {
		return err
	}
	w.stops = append(w.stops, func() { _ = stop() }) // also of a device that is gone
	return nil
}

// Stop ends all watching.
func (w *Wire) Stop() {
	for _, stop := range w.stops {
		stop()
	}
	w.stops = nil
}

// Plain are the packets in plaintext up to now.
func (w *Wire) Plain() []Packet {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.plain)
}

// Encrypted counts the packets of WireGuard and ESP up to now.
func (w *Wire) Encrypted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.encrypted
}

const (
	// plainMax bounds the packets that a Wire keeps, shown is how many bytes of each it keeps.
	plainMax = 10_000
	shown    = 128
)

func (w *Wire) look(frame []byte) {
	if len(frame) < 14 || slices.ContainsFunc(w.outside, func(m net.HardwareAddr) bool {
		return bytes.Equal(frame[:6], m) || bytes.Equal(frame[6:12], m)
	}) {
		return
	}
	h := capture.HeaderOf(frame)
	p := Packet{Source: h.Source, Destination: h.Destination, Protocol: h.Protocol}
	inRange := func(r netip.Prefix) bool { return r.Contains(p.Source) || r.Contains(p.Destination) }
	switch {
	case bytes.Contains(frame, []byte(Marker)):
		p.Why = "the marker"
	case findsNeighbour(frame):
	case slices.ContainsFunc(w.ranges, inRange):
		p.Why = "an address of a pod"
	case h.Protocol == unix.IPPROTO_UDP && h.Port == vxlanPort:
		p.Why = "VXLAN"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Why != "" && len(w.plain) < plainMax {
		p.Frame = bytes.Clone(frame[:min(len(frame), shown)])
		w.plain = append(w.plain, p)
	}
	if h.Protocol == unix.IPPROTO_ESP || h.Protocol == unix.IPPROTO_UDP && h.Port == wireGuardPort {
		w.encrypted++
	}
}

// findsNeighbour reports whether a frame is a neighbour solicitation or advertisement (RFC 4861, 4.3 and 4.4) with one option
// at most: macvlan pods find MACs by it, in plaintext as with ARP.
func findsNeighbour(frame []byte) bool {
	const header, length = 14, 40
	if len(frame) < header+length+1 || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IPV6 {
		return false
	}
	ip, kind := frame[header:], frame[header+length]
	return ip[6] == unix.IPPROTO_ICMPV6 && ip[7] == 255 && binary.BigEndian.Uint16(ip[4:]) <= 32 && (kind == 135 || kind == 136)
}
