package adversary

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// syn is the denied packet that other frames carry.
func (s *attempt) syn() []byte { return s.ip(tcp, s.segment(s.port, serverPort, frame.SYN)).Packet() }

// EtherTypes (IEEE 802 numbers).
const (
	vlanTag, serviceTag             = 0x8100, 0x88a8
	mpls, pppoe, lldp, experimental = 0x8847, 0x8864, 0x88cc, 0x88b5
)

// links are frames other than plain Ethernet with IP.
var links = []attack{
	{name: "VLAN tags", kind: forged, frames: func(s *attempt) (frames [][]byte) {
		f := frame.Ethernet(s.attacker.host, s.attacker.mac, frame.EtherType(s.to()), s.syn())
		for _, tags := range [][]uint16{{0}, {1}, {5}, {4095}, {0xe000}, {5, 6}, {0, 0}} { // the highest three bits are the priority
			frames = append(frames, frame.Tagged(f, vlanTag, tags...), frame.Tagged(f, serviceTag, tags...))
		}
		return frames
	}},
	{name: "802.3 with LLC and SNAP", kind: forged, reasons: []string{"not_ip"}, frames: one(func(s *attempt) []byte {
		snap := binary.BigEndian.AppendUint16([]byte{0xaa, 0xaa, 3, 0, 0, 0}, frame.EtherType(s.to()))
		data := append(snap, s.syn()...)
		return frame.Ethernet(s.attacker.host, s.attacker.mac, uint16(len(data)), data)
	})},
	{name: "protocols other than IP", kind: forged, reasons: []string{"not_ip"}, frames: func(s *attempt) (frames [][]byte) {
		for _, etherType := range []uint16{mpls, pppoe, lldp, experimental, 0x88cc, 0x22f0, 0x0801, 0xffff} {
			frames = append(frames, frame.Ethernet(s.attacker.host, s.attacker.mac, etherType, s.syn()))
		}
		return frames
	}},
	{name: "EtherType of the other family", kind: forged, reasons: []string{"malformed", "truncated"}, frames: one(func(s *attempt) []byte {
		return frame.Ethernet(s.attacker.host, s.attacker.mac, pick[uint16](s, unix.ETH_P_IPV6, unix.ETH_P_IP), s.syn())
	})},
}

// lengths are packets with wrong lengths and checksums.
var lengths = []attack{
	{name: "IP length that ends before the ports", kind: denied, frames: func(s *attempt) (frames [][]byte) {
		for _, missing := range []int{1, 4, 8, 20, 28} {
			ip := s.ip(tcp, s.segment(s.port, serverPort, frame.SYN))
			ip.Length = pick(s, 20, 0) + len(ip.Payload) - missing
			frames = append(frames, s.frame(ip))
		}
		return frames
	}},
	{name: "IP length beyond the frame", kind: denied, frames: func(s *attempt) (frames [][]byte) {
		for _, more := range []int{1, 100, 60000} {
			ip := s.ip(tcp, s.segment(s.port, serverPort, frame.SYN))
			ip.Length = pick(s, 20, 0) + len(ip.Payload) + more
			frames = append(frames, s.frame(ip))
		}
		return frames
	}},
	{name: "UDP length that differs from IP's", kind: denied, frames: func(s *attempt) (frames [][]byte) {
		for _, length := range []uint16{0, 7, 8, 9, 1000, 0xffff} {
			d := s.datagram(append(s.token, s.token...))
			binary.BigEndian.PutUint16(d[4:], length)
			frames = append(frames, s.frame(s.ip(unix.IPPROTO_UDP, d)))
		}
		return frames
	}},
	{name: "wrong checksums", kind: denied, frames: func(s *attempt) (frames [][]byte) {
		for _, at := range []int{10, pick(s, 36, 56)} { // of IPv4 (for IPv6 an address byte, left as it is), of TCP
			f := s.tcp(s.port, serverPort, frame.SYN)
			if at += frame.HeaderLength; s.is4() || at > 40 {
				f[at] ^= 0xff
			}
			frames = append(frames, f)
		}
		return frames
	}},
	{name: "low and high TTL", kind: denied, frames: func(s *attempt) (frames [][]byte) {
		for _, hops := range []uint8{1, 2, 255} {
			ip := s.ip(tcp, s.segment(s.port, serverPort, frame.SYN))
			ip.Hops = hops
			frames = append(frames, s.frame(ip))
		}
		return frames
	}},
	{name: "truncated headers", kind: forged, frames: func(s *attempt) (frames [][]byte) {
		whole := s.tcp(s.port, serverPort, frame.SYN)
		for _, length := range []int{frame.HeaderLength, 15, 20, 33, 40, 53} {
			frames = append(frames, whole[:length])
		}
		return frames
	}},
	{name: "a large frame", kind: denied, frames: one(func(s *attempt) []byte {
		data := append(s.token, make([]byte, 1300)...)
		return s.frame(s.ip(unix.IPPROTO_UDP, s.datagram(data)))
	})},
}

// virtioHeader is struct virtio_net_hdr (virtio 1.2, 5.1.6), little-endian.
type virtioHeader struct {
	flags, kind                           uint8
	length, size, checksumStart, checksum uint16
}

// firstChecksum is the lowest checksum start that Linux accepts (virtio_net_hdr_to_skb).
const firstChecksum = 20

const (
	needsChecksum                       = 1
	tcp4, udpFragments, tcp6, udp4, ecn = 1, 3, 4, 5, 0x80
)

func (h virtioHeader) before(f []byte) []byte {
	out := []byte{h.flags, h.kind}
	for _, each := range []uint16{h.length, h.size, h.checksumStart, h.checksum} {
		out = binary.LittleEndian.AppendUint16(out, each)
	}
	return append(out, f...)
}

// offloads are frames that leave segmentation and checksums to the device. The kernel rejects some.
var offloads = []attack{
	{name: "TCP segmentation offload", kind: denied, offloaded: true, frames: func(s *attempt) (frames [][]byte) {
		data := make([]byte, 3000)
		for i := 0; i+len(s.token) < len(data); i += 100 {
			copy(data[i:], s.token)
		}
		headers := uint16(frame.HeaderLength + pick(s, 20, 40))
		p := frame.TCP(s.fromPort(), s.serverPort(), frame.Segment{Flags: frame.PSH | frame.SYN}, data)
		for _, size := range []uint16{1, 8, 536, 1400} {
			h := virtioHeader{needsChecksum, pick[uint8](s, tcp4, tcp6), headers + 20, size, headers, 16}
			frames = append(frames, h.before(s.frame(s.ip(tcp, p))))
		}
		return frames
	}},
	{name: "checksum offload over ports, flags and addresses", kind: denied, offloaded: true, frames: func(s *attempt) (frames [][]byte) {
		f := s.tcp(s.port, serverPort, frame.SYN)
		ports := uint16(frame.HeaderLength + pick(s, 20, 40))
		for _, at := range []uint16{ports, ports + 2, ports + 12, ports - 2, ports - 4} {
			for _, start := range []uint16{firstChecksum, ports - 8} {
				frames = append(frames, virtioHeader{flags: needsChecksum, checksumStart: start, checksum: at - start}.before(f))
			}
		}
		return frames
	}},
	{name: "UDP segmentation offload", kind: denied, offloaded: true, frames: one(func(s *attempt) []byte {
		headers := uint16(frame.HeaderLength + pick(s, 20, 40))
		p := frame.UDP(s.fromPort(), netip.AddrPortFrom(s.to(), serverPort), append(make([]byte, 2800), s.token...))
		return virtioHeader{needsChecksum, udp4, headers + 8, 1000, headers, 6}.before(s.frame(s.ip(unix.IPPROTO_UDP, p)))
	})},
}
