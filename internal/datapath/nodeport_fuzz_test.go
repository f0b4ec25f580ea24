package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// fuzzNodePorts are those of newNodePortFuzzer: one with a backend elsewhere, one with one here, one with none, and
// one that nobody may use.
const (
	fuzzRemote = 30080 + iota
	fuzzLocal
	fuzzRefused
	fuzzClosed
)

// newNodePortFuzzer is node A with tables that are filled, and connections in them.
func newNodePortFuzzer(tb testing.TB, dsr bool) *rig {
	tb.Helper()
	r := newServiceRig(tb, Config{DSR: dsr})
	for _, family := range families {
		at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(nodeA.addr(family), port) }
		var flags bpfServiceFlag
		if dsr {
			flags = bpfServiceFlagSERVICE_DSR
		}
		r.serve(tb, at(fuzzRemote), flags, flowOf(family).backend)
		r.serve(tb, at(fuzzLocal), flags, netip.AddrPortFrom(podA.addr(family), 8080))
		r.serve(tb, at(fuzzRefused), flags)
		r.serve(tb, at(fuzzClosed), bpfServiceFlagSERVICE_SOURCES, flowOf(family).backend)
		for _, protocol := range []uint8{protoTCP, protoUDP} {
			r.enter(tb, flowOf(family), protocol)
		}
	}
	return r
}

// randomNodePortPacket goes to a NodePort or to a port that translation gave, most of the time.
func randomNodePortPacket(r *rand.Rand) []byte {
	family := 4 + 2*r.IntN(2)
	f := flowOf(family)
	from := []netip.AddrPort{f.client, f.backend, netip.AddrPortFrom(world.addr(family), uint16(r.Uint32()))}[r.IntN(3)]
	port := []uint16{fuzzRemote, fuzzLocal, fuzzRefused, fuzzClosed, f.node.Port(), uint16(r.Uint32())}[r.IntN(6)]
	p := eth(router, nodeA.mac).ip(from.Addr(), nodeA.addr(family))
	if r.IntN(8) == 0 {
		p = p.ttl(uint8(r.IntN(3)))
	}
	for family == 6 && r.IntN(8) == 0 && len(p.extensions) < 2 {
		p = p.extend([]uint8{protoHopByHop, protoRouting, protoDstOptions}[r.IntN(3)])
	}
	switch r.IntN(5) {
	case 0, 1:
		p = p.tcp(from.Port(), port).segment(byte(r.Uint32()), r.Uint32(), r.Uint32())
	case 2, 3:
		p = p.udp(from.Port(), port)
	default:
		quoted := eth(MAC{}, MAC{}).ip(f.node.Addr(), f.backend.Addr()).udp(f.node.Port(), f.backend.Port()).payload("quoted").bytes()[ethLen:]
		p = p.icmp(uint8(r.IntN(13)), uint8(r.IntN(6))).payload(string(quoted[:r.IntN(len(quoted)+1)]))
	}
	if p.proto != protoICMP && p.proto != protoICMPv6 {
		p = p.payload(string(make([]byte, r.IntN(600))))
	}
	if r.IntN(8) == 0 {
		p = p.fragment(uint16(8*r.IntN(3)), r.IntN(2) == 0)
	}
	b := p.bytes()
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(4) {
			b[r.IntN(min(len(b), 80))] = byte(r.Uint32())
		}
	}
	if r.IntN(10) == 0 {
		b = b[:ethLen+1+r.IntN(len(b)-ethLen)]
	}
	return b
}

// checkNodePort runs one packet and says what is wrong with what comes of it. It must be called on the stage.
func (r *rig) checkNodePort(in run) (verdict, error) {
	got, err := r.run(in)
	if err != nil {
		if shortForKernel(in.in) {
			return verdictNext, nil
		}
		return 0, err
	}
	switch got.verdict {
	case verdictNext:
		if in.program == bpfProgWireXdp && !bytes.Equal(in.in, got.out) {
			return 0, fmt.Errorf("what passes has changed to\n%s", layers(got.out))
		}
	case verdictDrop:
		return got.verdict, nil
	case verdictRedirect:
		if in.program == bpfProgWireXdp && len(in.in) != len(got.out) {
			return 0, fmt.Errorf("%d bytes have become %d", len(in.in), len(got.out))
		}
	default:
		return 0, fmt.Errorf("%s", got.verdict)
	}
	if soundHeaders(in.in) && !soundHeaders(got.out) {
		return 0, fmt.Errorf("a packet with right checksums has become\n%s", layers(got.out))
	}
	return got.verdict, nil
}

// soundHeaders says whether a packet's checksums are right, as far as it is whole TCP, UDP or ICMP without extension headers. UDP's 0 is none
// (RFC 768), also where it happens to be the sum.
func soundHeaders(b []byte) bool {
	var pseudo []byte
	var protocol byte
	var body []byte
	switch {
	case len(b) >= ethLen+ipv4Len && binary.BigEndian.Uint16(b[12:]) == etherIPv4 && b[ethLen] == 0x45:
		ip := b[ethLen:]
		length := int(binary.BigEndian.Uint16(ip[2:]))
		if checksum(ip[:ipv4Len]) != 0xffff || length < ipv4Len || length > len(ip) || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
			return false
		}
		protocol, body, pseudo = ip[9], ip[ipv4Len:length], append(pseudo, ip[12:20]...)
	case len(b) >= ethLen+ipv6Len && binary.BigEndian.Uint16(b[12:]) == etherIPv6 && b[ethLen]>>4 == 6:
		ip := b[ethLen:]
		length := int(binary.BigEndian.Uint16(ip[4:]))
		if length > len(ip)-ipv6Len {
			return false
		}
		protocol, body, pseudo = ip[6], ip[ipv6Len:ipv6Len+length], append(pseudo, ip[8:40]...)
	default:
		return false
	}
	switch {
	case protocol == protoICMP && len(body) >= 8:
		return checksum(body) == 0xffff
	case protocol == protoUDP && len(body) >= 8 && body[6] == 0 && body[7] == 0:
		return false
	case protocol == protoTCP && len(body) >= 20, protocol == protoUDP && len(body) >= 8, protocol == protoICMPv6 && len(body) >= 8:
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(body)))
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(protocol))
		return checksum(pseudo, body) == 0xffff
	}
	return false
}

// Random packets to NodePorts: nothing but the right ones gets through changed, and what does is whole.
func TestRandomNodePortPackets(t *testing.T) {
	seen := map[string]int{}
	for _, dsr := range []bool{false, true} {
		r, random := newNodePortFuzzer(t, dsr), testenv.Rand(t)
		r.stage.do(func() {
			for range 5000 {
				b := randomNodePortPacket(random)
				for _, program := range []string{bpfProgWireXdp, bpfProgFromWire} {
					v, err := r.checkNodePort(run{program: program, in: b})
					if err != nil {
						t.Errorf("%s: %v\n%s% x", program, err, layers(b), b)
						return
					}
					seen[program+" "+v.String()]++
				}
			}
		})
	}
	t.Logf("verdicts: %v", seen)
	for _, program := range []string{bpfProgWireXdp, bpfProgFromWire} {
		for _, v := range []verdict{verdictNext, verdictDrop, verdictRedirect} {
			if key := program + " " + v.String(); seen[key] < 50 {
				t.Errorf("only %d times %q: the packets do not try enough", seen[key], key)
			}
		}
	}
}

// FuzzNodePorts runs any bytes through what packets from the wire meet, with Services in the tables.
func FuzzNodePorts(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 64 {
		f.Add(randomNodePortPacket(random))
	}
	rigs := []*rig{newNodePortFuzzer(f, false), newNodePortFuzzer(f, true)}
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) > 3000 { // what fits into the linear part of the kernel's test packet
			return
		}
		for _, r := range rigs {
			for _, program := range []string{bpfProgWireXdp, bpfProgFromWire} {
				var err error
				r.stage.do(func() { _, err = r.checkNodePort(run{program: program, in: packet}) })
				if err != nil {
					t.Fatalf("%s: %v\n%s", program, err, layers(packet))
				}
			}
		}
	})
}
