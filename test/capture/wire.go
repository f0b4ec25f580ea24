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
}

func (p Packet) String() string { return fmt.Sprintf("%s to %s (%s)", p.Source, p.Destination, p.Why) }

// NewWire returns one that looks for packets with addresses in these ranges, with Marker, and of VXLAN, in frames between
// nodes: those from and to the MACs of machines outside are left out.
func NewWire(ranges []netip.Prefix, outside ...net.HardwareAddr) *Wire {
	return &Wire{ranges: ranges, outside: outside}
}

// Watch starts to look at the frames of a device.
func (w *Wire) Watch(netns testbed.Netns, device string) error {
	stop, err := Start(netns, device, func(frame []byte, _ bool) { w.look(frame) })
	if err != nil {
		return fmt.Errorf("watch %s: %w", device, err)
	}
	w.stops = append(w.stops, stop)
	return nil
}

// Stop ends all that Watch has started.
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

// plainMax bounds the packets that a Wire keeps.
const plainMax = 10_000

func (w *Wire) look(frame []byte) {
	if len(frame) < 14 || slices.ContainsFunc(w.outside, func(m net.HardwareAddr) bool {
		return bytes.Equal(frame[:6], m) || bytes.Equal(frame[6:12], m)
	}) {
		return
	}
	h := headerOf(frame)
	p := Packet{Source: h.source, Destination: h.destination}
	inRange := func(r netip.Prefix) bool { return r.Contains(p.Source) || r.Contains(p.Destination) }
	switch {
	case bytes.Contains(frame, []byte(Marker)):
		p.Why = "the marker"
	case slices.ContainsFunc(w.ranges, inRange):
		p.Why = "an address of a pod"
	case h.protocol == unix.IPPROTO_UDP && h.port == vxlanPort:
		p.Why = "VXLAN"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Why != "" && len(w.plain) < plainMax {
		w.plain = append(w.plain, p)
	}
	if h.protocol == unix.IPPROTO_ESP || h.protocol == unix.IPPROTO_UDP && h.port == wireGuardPort {
		w.encrypted++
	}
}

// header is what look needs of the outer IP header, and of UDP the destination port.
type header struct {
	source, destination netip.Addr
	protocol            byte
	port                uint16
}

// headerOf reads the headers of a frame, after VLAN tags; it is empty for other frames.
func headerOf(frame []byte) (h header) {
	at := 12
	kind := func() uint16 {
		if len(frame) < at+2 {
			return 0
		}
		return binary.BigEndian.Uint16(frame[at:])
	}
	for kind() == unix.ETH_P_8021Q || kind() == unix.ETH_P_8021AD {
		at += 4
	}
	var ports int
	switch ip := frame[min(at+2, len(frame)):]; {
	case kind() == unix.ETH_P_IP && len(ip) >= 20:
		h = header{source: netip.AddrFrom4([4]byte(ip[12:16])), destination: netip.AddrFrom4([4]byte(ip[16:20])), protocol: ip[9]}
		ports = at + 2 + int(ip[0]&0xf)*4
	case kind() == unix.ETH_P_IPV6 && len(ip) >= 40:
		h = header{source: netip.AddrFrom16([16]byte(ip[8:24])), destination: netip.AddrFrom16([16]byte(ip[24:40])), protocol: ip[6]}
		ports = at + 2 + 40
	default:
		return h
	}
	if len(frame) >= ports+4 {
		h.port = binary.BigEndian.Uint16(frame[ports+2:])
	}
	return h
}
