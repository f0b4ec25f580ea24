package lb_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// fuzzNodePorts are those of newNodePortFuzzer: one with a backend elsewhere, one with one here, one with none, and
// one that is invalid.
const (
	fuzzRemote = 30080 + iota
	fuzzLocal
	fuzzRefused
	fuzzClosed
)

// newNodePortFuzzer is node A with tables that are filled, and connections in them.
func newNodePortFuzzer(tb testing.TB, dsr bool) *harness.Harness {
	tb.Helper()
	r := harness.NewServices(tb, config.Datapath{DSR: dsr})
	for _, family := range fixtures.Families {
		at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(fixtures.NodeA.Addr(family), port) }
		var flags bpf.ServiceFlag
		if dsr {
			flags = bpf.ServiceFlagSERVICE_DSR
		}
		r.Serve(tb, at(fuzzRemote), flags, fixtures.FlowOf(family).Backend)
		r.Serve(tb, at(fuzzLocal), flags, netip.AddrPortFrom(fixtures.PodA.Addr(family), 8080))
		r.Serve(tb, at(fuzzRefused), flags)
		r.Serve(tb, at(fuzzClosed), bpf.ServiceFlagSERVICE_SOURCES, fixtures.FlowOf(family).Backend)
		for _, protocol := range []uint8{fixtures.ProtoTCP, fixtures.ProtoUDP} {
			r.Enter(tb, fixtures.FlowOf(family), protocol)
		}
	}
	return r
}

// randomNodePortPacket goes to a NodePort or to a port that translation gave, most of the time.
func randomNodePortPacket(r *rand.Rand) []byte {
	family := 4 + 2*r.IntN(2)
	f := fixtures.FlowOf(family)
	from := []netip.AddrPort{f.Client, f.Backend, netip.AddrPortFrom(fixtures.External.Addr(family), uint16(r.Uint32()))}[r.IntN(3)]
	port := []uint16{fuzzRemote, fuzzLocal, fuzzRefused, fuzzClosed, f.Node.Port(), uint16(r.Uint32())}[r.IntN(6)]
	p := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(from.Addr(), fixtures.NodeA.Addr(family))
	if r.IntN(8) == 0 {
		p = p.Ttl(uint8(r.IntN(3)))
	}
	for family == 6 && r.IntN(8) == 0 && len(p.Extensions) < 2 {
		p = p.Extend([]uint8{fixtures.ProtoHopByHop, fixtures.ProtoRouting, fixtures.ProtoDstOptions}[r.IntN(3)])
	}
	switch r.IntN(5) {
	case 0, 1:
		p = p.Tcp(from.Port(), port).Segment(byte(r.Uint32()), r.Uint32(), r.Uint32())
	case 2, 3:
		p = p.Udp(from.Port(), port)
	default:
		quoted := fixtures.Eth(fwd.MAC{}, fwd.MAC{}).Ip(f.Node.Addr(), f.Backend.Addr()).Udp(f.Node.Port(), f.Backend.Port()).Payload("quoted").Bytes()[fixtures.EthLen:]
		p = p.Icmp(uint8(r.IntN(13)), uint8(r.IntN(6))).Payload(string(quoted[:r.IntN(len(quoted)+1)]))
	}
	if p.Proto != fixtures.ProtoICMP && p.Proto != fixtures.ProtoICMPv6 {
		p = p.Payload(string(make([]byte, r.IntN(600))))
	}
	if r.IntN(8) == 0 {
		p = p.Fragment(uint16(8*r.IntN(3)), r.IntN(2) == 0)
	}
	b := p.Bytes()
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(4) {
			b[r.IntN(min(len(b), 80))] = byte(r.Uint32())
		}
	}
	if r.IntN(10) == 0 {
		b = b[:fixtures.EthLen+1+r.IntN(len(b)-fixtures.EthLen)]
	}
	return b
}

// checkNodePort runs one packet and says what is wrong with what comes of it. It must be called on the stage.
func checkNodePort(r *harness.Harness, in harness.Run) (harness.Verdict, error) {
	got, err := r.Run(in)
	if err != nil {
		if fixtures.ShortForKernel(in.In) {
			return harness.VerdictNext, nil
		}
		return 0, err
	}
	switch got.Verdict {
	case harness.VerdictNext:
		if in.Program == bpf.ProgWireXdp && !bytes.Equal(in.In, got.Out) {
			return 0, fmt.Errorf("what passes has changed to\n%s", fixtures.Layers(got.Out))
		}
	case harness.VerdictDrop:
		return got.Verdict, nil
	case harness.VerdictRedirect:
		if in.Program == bpf.ProgWireXdp && len(in.In) != len(got.Out) {
			return 0, fmt.Errorf("%d bytes have become %d", len(in.In), len(got.Out))
		}
	default:
		return 0, fmt.Errorf("%s", got.Verdict)
	}
	if soundHeaders(in.In) && !soundHeaders(got.Out) {
		return 0, fmt.Errorf("a packet with right checksums has become\n%s", fixtures.Layers(got.Out))
	}
	return got.Verdict, nil
}

// soundHeaders says whether a packet's checksums are right, as far as it is whole TCP, UDP or ICMP without extension headers. UDP's 0 is none
// (RFC 768), also where it happens to be the sum.
func soundHeaders(b []byte) bool {
	var pseudo []byte
	var protocol byte
	var body []byte
	switch {
	case len(b) >= fixtures.EthLen+fixtures.Ipv4Len && binary.BigEndian.Uint16(b[12:]) == fixtures.EtherIPv4 && b[fixtures.EthLen] == 0x45:
		ip := b[fixtures.EthLen:]
		length := int(binary.BigEndian.Uint16(ip[2:]))
		if fixtures.Checksum(ip[:fixtures.Ipv4Len]) != 0xffff || length < fixtures.Ipv4Len || length > len(ip) || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
			return false
		}
		protocol, body, pseudo = ip[9], ip[fixtures.Ipv4Len:length], append(pseudo, ip[12:20]...)
	case len(b) >= fixtures.EthLen+fixtures.Ipv6Len && binary.BigEndian.Uint16(b[12:]) == fixtures.EtherIPv6 && b[fixtures.EthLen]>>4 == 6:
		ip := b[fixtures.EthLen:]
		length := int(binary.BigEndian.Uint16(ip[4:]))
		if length > len(ip)-fixtures.Ipv6Len {
			return false
		}
		protocol, body, pseudo = ip[6], ip[fixtures.Ipv6Len:fixtures.Ipv6Len+length], append(pseudo, ip[8:40]...)
	default:
		return false
	}
	switch {
	case protocol == fixtures.ProtoICMP && len(body) >= 8:
		return fixtures.Checksum(body) == 0xffff
	case protocol == fixtures.ProtoUDP && len(body) >= 8 && body[6] == 0 && body[7] == 0:
		return false
	case protocol == fixtures.ProtoTCP && len(body) >= 20, protocol == fixtures.ProtoUDP && len(body) >= 8, protocol == fixtures.ProtoICMPv6 && len(body) >= 8:
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(body)))
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(protocol))
		return fixtures.Checksum(pseudo, body) == 0xffff
	}
	return false
}

// Random packets to NodePorts: nothing but the right ones gets through changed, and what does is whole.
func TestRandomNodePortPackets(t *testing.T) {
	seen := map[string]int{}
	for _, dsr := range []bool{false, true} {
		r, random := newNodePortFuzzer(t, dsr), testenv.Rand(t)
		r.Netns.Do(func() {
			for range 5000 {
				b := randomNodePortPacket(random)
				for _, program := range []string{bpf.ProgWireXdp, bpf.ProgFromWire} {
					v, err := checkNodePort(r, harness.Run{Program: program, In: b})
					if err != nil {
						t.Errorf("%s: %v\n%s% x", program, err, fixtures.Layers(b), b)
						return
					}
					seen[program+" "+v.String()]++
				}
			}
		})
	}
	t.Logf("verdicts: %v", seen)
	for _, program := range []string{bpf.ProgWireXdp, bpf.ProgFromWire} {
		for _, v := range []harness.Verdict{harness.VerdictNext, harness.VerdictDrop, harness.VerdictRedirect} {
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
	rigs := []*harness.Harness{newNodePortFuzzer(f, false), newNodePortFuzzer(f, true)}
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) > 3000 { // what fits into the linear part of the kernel's test packet
			return
		}
		for _, r := range rigs {
			for _, program := range []string{bpf.ProgWireXdp, bpf.ProgFromWire} {
				var err error
				r.Netns.Do(func() { _, err = checkNodePort(r, harness.Run{Program: program, In: packet}) })
				if err != nil {
					t.Fatalf("%s: %v\n%s", program, err, fixtures.Layers(packet))
				}
			}
		}
	})
}
