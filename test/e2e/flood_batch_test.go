package e2e

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// varying is a set of fields that differ between the packets of a flood.
type varying uint

// Fields that may differ. A host is the last 16 bits of an IPv4 address, the last 64 bits of an IPv6 address.
const (
	sourcePort varying = 1 << iota
	destinationPort
	sourceHost
	destinationHost
	sequence   // of TCP
	identifier // of an echo
	fragmentID
)

// template is a frame with the words that differ in each frame sent.
type template struct {
	bytes []byte
	words []word
}

// word is 16 bits of a frame.
type word struct {
	at int
	// checksums are the offsets of the checksums that cover it; 0 is none.
	checksums [2]int
	port      bool // a client's port, at least 1024
}

// varyingWords returns the words of an IPv4 or IPv6 frame that vary. A fragment header belongs to a first fragment.
func varyingWords(bytes []byte, what varying) (words []word) {
	const ip = frame.HeaderLength
	ipv4 := bytes[ip]>>4 == 4
	protocol, transport, header := bytes[ip+6], ip+40, 0
	if ipv4 {
		protocol, transport, header = bytes[ip+9], ip+20, ip+10
	}
	if protocol == frame.Fragment {
		protocol, transport = bytes[transport], transport+8
	}
	checksum := transport + map[uint8]int{unix.IPPROTO_UDP: 6, unix.IPPROTO_TCP: 16, unix.IPPROTO_ICMP: 2, unix.IPPROTO_ICMPV6: 2}[protocol]
	add := func(kind varying, at, count int, w word) {
		for ; what&kind != 0 && count > 0; count-- {
			w.at = at
			words = append(words, w)
			at += 2
		}
	}
	hosts, source, destination := 4, ip+16, ip+32
	if ipv4 {
		hosts, source, destination = 1, ip+14, ip+18
	}
	address := word{checksums: [2]int{checksum, header}}
	if protocol == unix.IPPROTO_ICMP {
		address.checksums[0] = 0 // no pseudo header
	}
	add(sourceHost, source, hosts, address)
	add(destinationHost, destination, hosts, address)
	add(sourcePort, transport, 1, word{checksums: [2]int{checksum}, port: true})
	add(destinationPort, transport+2, 1, word{checksums: [2]int{checksum}, port: true})
	add(sequence, transport+4, 2, word{checksums: [2]int{checksum}})
	add(identifier, transport+4, 2, word{checksums: [2]int{checksum}})
	if ipv4 {
		add(fragmentID, ip+4, 1, word{checksums: [2]int{header}})
	} else {
		add(fragmentID, transport-2, 1, word{})
	}
	return words
}

// renew changes the frame. Correct checksums stay correct, and wrong ones wrong (RFC 1624).
func (t *template) renew(random *rand.Rand) {
	var bits uint64
	for i, w := range t.words {
		if i%4 == 0 {
			bits = random.Uint64()
		}
		before, now := binary.BigEndian.Uint16(t.bytes[w.at:]), uint16(bits)
		bits >>= 16
		if w.port {
			now = max(now, 1024)
		}
		binary.BigEndian.PutUint16(t.bytes[w.at:], now)
		for _, at := range w.checksums {
			if at == 0 {
				continue
			}
			sum := uint32(^binary.BigEndian.Uint16(t.bytes[at:])) + uint32(^before) + uint32(now)
			sum = sum>>16 + sum&0xffff
			if sum = ^(sum>>16 + sum) & 0xffff; sum == 0 {
				sum = 0xffff // the same in one's complement; 0 means no checksum
			}
			binary.BigEndian.PutUint16(t.bytes[at:], uint16(sum))
		}
	}
}

// batch is the frames of one system call.
type batch struct {
	frames   []template
	parts    [floodBatch]unix.Iovec
	messages [floodBatch]message
}

// message is struct mmsghdr of sendmmsg(2).
type message struct {
	unix.Msghdr
	_ uint32 // bytes sent
}

// point makes the messages point to the frames.
func (b *batch) point() {
	for i, f := range b.frames {
		b.parts[i].Base = &f.bytes[0]
		b.parts[i].SetLen(len(f.bytes))
		b.messages[i].Iov = &b.parts[i]
		b.messages[i].SetIovlen(1)
	}
}

// send changes each frame and sends it once. It returns the number of frames that the device accepted.
func (b *batch) send(f *flooder) (taken int, err error) {
	for i := range b.frames {
		b.frames[i].renew(f.random)
	}
	for next := 0; next < len(b.frames); {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(f.fd), uintptr(unsafe.Pointer(&b.messages[next])), uintptr(len(b.frames)-next), 0, 0, 0)
		switch {
		case errno == 0:
			taken += int(n)
			next += int(n)
		case errno == unix.ENOBUFS:
			next++ // the device's queue is full
		case errno != unix.EINTR:
			return taken, fmt.Errorf("sendmmsg: %w", errno)
		}
	}
	return taken, nil
}

// A changed frame keeps the state of its checksums: correct in a valid frame, wrong in a damaged one.
func TestBatchKeepsChecksums(t *testing.T) {
	random := rand.New(rand.NewPCG(testenv.Seed(t), 2))
	for name, ends := range map[string][2]netip.AddrPort{
		"IPv4": {netip.MustParseAddrPort("10.0.0.1:2000"), netip.MustParseAddrPort("198.18.0.1:53")},
		"IPv6": {netip.MustParseAddrPort("[fd00::1]:2000"), netip.MustParseAddrPort("[2001:2::1]:53")},
	} {
		from, to := ends[0], ends[1]
		echo, echoKind := uint8(unix.IPPROTO_ICMP), uint8(8)
		if from.Addr().Is6() {
			echo, echoKind = unix.IPPROTO_ICMPV6, 128
		}
		hosts := sourceHost | destinationHost
		for protocol, test := range map[uint8]struct {
			payload []byte
			varies  varying
		}{
			unix.IPPROTO_UDP: {frame.UDP(from, to, []byte("?")), hosts | sourcePort | destinationPort},
			unix.IPPROTO_TCP: {frame.TCP(from, to, frame.Segment{Flags: frame.SYN}, nil), hosts | sourcePort | destinationPort | sequence},
			echo:             {frame.ICMP(from.Addr(), to.Addr(), echoKind, 0, 7, nil), hosts | identifier},
		} {
			packet := frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: protocol, Payload: test.payload}.Packet()
			bytes := frame.Ethernet(make([]byte, 6), make([]byte, 6), frame.EtherType(from.Addr()), packet)
			changed := template{bytes, varyingWords(bytes, test.varies)}
			seen := map[string]bool{}
			for range 1000 {
				changed.renew(random)
				seen[string(bytes)] = true
				if err := checkSums(bytes[frame.HeaderLength:]); err != nil {
					t.Fatalf("%s, protocol %d: %v", name, protocol, err)
				}
			}
			if len(seen) < 990 {
				t.Errorf("%s, protocol %d: 1000 frames with %d different contents only", name, protocol, len(seen))
			}
			bytes[len(bytes)-1]++
			changed.renew(random)
			if checkSums(bytes[frame.HeaderLength:]) == nil {
				t.Errorf("%s, protocol %d: a damaged frame has correct checksums", name, protocol)
			}
		}
	}
}

// checkSums verifies the checksums of a packet without options.
func checkSums(p []byte) error {
	var addresses, payload []byte
	var protocol byte
	if p[0]>>4 == 4 {
		addresses, payload, protocol = p[12:20], p[20:], p[9]
		if sum := frame.Checksum(p[:20]); sum != 0 {
			return fmt.Errorf("the header's sum is %#x", sum)
		}
	} else {
		addresses, payload, protocol = p[8:40], p[40:], p[6]
	}
	pseudo := append(slices.Clone(addresses), 0, protocol, 0, byte(len(payload)))
	if protocol == unix.IPPROTO_ICMP {
		pseudo = nil
	}
	if sum := frame.Checksum(pseudo, payload); sum != 0 {
		return fmt.Errorf("the payload's sum is %#x", sum)
	}
	return nil
}
