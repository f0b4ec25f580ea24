package policy_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

const (
	badPiece   = uint32(bpf.DropReasonDROP_BAD_FRAGMENT)
	unreadable = uint32(bpf.DropReasonDROP_UNREADABLE)
)

// holding truncates the IP packet in a frame to so many bytes after its IP header; the others become Ethernet
// padding.
func holding(in harness.Run, n int) harness.Run {
	b := append([]byte{}, in.In...)
	if b[fixtures.EthLen]>>4 == 4 {
		binary.BigEndian.PutUint16(b[fixtures.EthLen+2:], uint16(fixtures.Ipv4Len+n))
		clear(b[fixtures.EthLen+10 : fixtures.EthLen+12])
		binary.BigEndian.PutUint16(b[fixtures.EthLen+10:], ^fixtures.Checksum(b[fixtures.EthLen:fixtures.EthLen+fixtures.Ipv4Len]))
	} else {
		binary.BigEndian.PutUint16(b[fixtures.EthLen+4:], uint16(n))
	}
	in.In = b
	return in
}

// fragmentHeader is the size of the IPv6 fragment header in a packet's payload.
func fragmentHeader(family int) int { return (family - 4) / 2 * 8 }

// The proven attack: the first fragment has 8 bytes of TCP, followed by padding that looks like the header of an
// established connection; the flags come with the second fragment. It is dropped in both directions.
func TestPolicyHiddenSYN(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		pod, peer := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 80}.At(family)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80}))
		p.Allows(t, "SYN of the pod", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), pod, peer, fixtures.TcpSYN)))
		p.Allows(t, "SYN, ACK", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpSYN|fixtures.TcpACK)))

		whole := harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpACK)
		for name, length := range map[string]int{"8 bytes": 8, "16 bytes": 16} {
			first := holding(harness.WireBrings(whole.Fragment(0, true)), length+fragmentHeader(family))
			p.Denies(t, "a first piece of "+name, first, badPiece)
			back := holding(harness.PodSends(harness.SegmentOf(fixtures.FromPod(), pod, peer, fixtures.TcpACK).Fragment(0, true)), length+fragmentHeader(family))
			p.Denies(t, "a first piece of "+name+" of the pod", back, badPiece)
		}
		for _, offset := range []uint16{8, 16} {
			p.Denies(t, "a piece that lies over the header", harness.WireBrings(whole.Fragment(offset, false)), badPiece)
		}
		long := whole
		long.Transport = append([]byte{}, whole.Transport...)
		long.Transport[12] = 15 << 4 // 60 bytes, of which this fragment has 32
		p.Denies(t, "a first piece without all options", harness.WireBrings(long.Payload("twelve bytes").Fragment(0, true)), badPiece)
		long.Transport[12] = 4 << 4
		p.Denies(t, "a first piece with too short a header", harness.WireBrings(long.Payload("twelve bytes").Fragment(0, true)), badPiece)

		p.ClearFragments(t)
		p.Allows(t, "a first piece with the whole header", harness.WireBrings(whole.Payload("1234").Fragment(0, true)))
		p.Allows(t, "a later one", harness.WireBrings(whole.Payload("12345678").Fragment(24, false)))
	})
}

// The minimum first fragments of other transports.
func TestPolicyShortFirstPieces(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		pod, peer := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 80}.At(family)
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery})
		for name, c := range map[string]struct {
			in    fixtures.Packet
			needs int
		}{
			"UDP":  {harness.Datagram(fixtures.FromWire(), peer, pod), 8},
			"SCTP": {fixtures.FromWire().Ip(peer.Addr(), pod.Addr()).Sctp(peer.Port(), pod.Port()).Payload("chunk"), 16},
			"echo": {harness.EchoOf(fixtures.FromWire(), peer.Addr(), pod.Addr(), 7, false), 8},
		} {
			first := harness.WireBrings(c.in.Fragment(0, true))
			p.ClearFragments(t)
			p.Denies(t, name+", cut off", holding(first, c.needs-1+fragmentHeader(family)), badPiece)
			p.Allows(t, name+", whole", holding(first, c.needs+fragmentHeader(family)))
		}
	})
}

// Data after the IP packet is not read, neither by policy evaluation nor by the verdict cache.
func TestPolicyTrailingBytes(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
		data := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK))
		p.Allows(t, "data", data)
		p.Allows(t, "data with a verdict cache", data)
		for _, n := range []int{0, 4, 13, 19} {
			p.Denies(t, "data whose header lies behind the packet", holding(data, n), harness.NoIngress)
		}
		p.Allows(t, "a header and nothing else", holding(data, 20))

		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsOf53})
		query := harness.WireBrings(harness.Datagram(fixtures.FromWire(), client, harness.End{Member: fixtures.PodA, Port: 53}.At(family)))
		p.Allows(t, "a query", query)
		p.Allows(t, "a query with a verdict cache", query)
		p.Denies(t, "a query whose header lies behind the packet", holding(query, 7), harness.NoIngress)

		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsOf53}))
		kind, code := byte(3), byte(3)
		if family == 6 {
			kind, code = 1, 4
		}
		reply := harness.Datagram(fixtures.Eth(fwd.MAC{}, fwd.MAC{}), harness.End{Member: fixtures.PodA, Port: 53}.At(family), client)
		about := harness.WireBrings(fixtures.Quoting(fixtures.FromWire(), fixtures.PodB.Addr(family), fixtures.PodA.Addr(family), kind, code, 0, reply, 500))
		p.Allows(t, "an error about the reply", about)
		p.Denies(t, "one whose quotation lies behind the packet", holding(about, len(about.In)-fixtures.EthLen-ipHeader(p, family)-len("hello!")-4), harness.NoIngress)
	})
}

func ipHeader(p *harness.Policy, family int) int {
	if family == 4 {
		return fixtures.Ipv4Len
	}
	return fixtures.Ipv6Len
}

// A second first fragment changes nothing for the others; once the packet is complete its identification is free.
func TestPolicySecondFirstPiece(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP})
		pieces := func(port uint16) (first, next, last harness.Run) {
			whole := harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: port}.At(family)).Payload("sixteen bytes at least, and more")
			return harness.WireBrings(whole.Fragment(0, true)), harness.WireBrings(whole.Fragment(16, true)), harness.WireBrings(whole.Fragment(24, false))
		}
		first, next, last := pieces(53)
		other, _, _ := pieces(54)
		p.ClearFragments(t)
		p.Allows(t, "the first piece", first)
		p.Allows(t, "a later one", next)
		p.Denies(t, "another first piece, with other ports", other, badPiece)
		p.Allows(t, "the first piece once more", first)
		p.Allows(t, "the last one", last)
		p.Allows(t, "the first piece of the next packet", other)
	})
}

// The protocol is unknown behind too many extension headers: selected pods neither receive nor send such packets.
func TestPolicyUnreadable(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	behind := func(frame fixtures.Packet, from, to netip.AddrPort, extensions ...uint8) fixtures.Packet {
		for _, e := range extensions {
			frame = frame.Extend(e)
		}
		return harness.SegmentOf(frame, from, to, fixtures.TcpSYN)
	}
	client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(6), harness.End{Member: fixtures.PodA, Port: 80}.At(6)
	four := []uint8{fixtures.ProtoDstOptions, fixtures.ProtoDstOptions, fixtures.ProtoDstOptions, fixtures.ProtoDstOptions}
	five := append([]uint8{fixtures.ProtoDstOptions}, four...)
	p.Allows(t, "of a pod without policies", harness.WireBrings(behind(fixtures.FromWire(), client, server, five...)))
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	p.Allows(t, "four headers", harness.WireBrings(behind(fixtures.FromWire(), client, server, four...)))
	p.Denies(t, "five headers", harness.WireBrings(behind(fixtures.FromWire(), client, server, five...)), unreadable)
	p.Denies(t, "five headers out", harness.PodSends(behind(fixtures.FromPod(), server, client, five...)), unreadable)
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery})
	p.Denies(t, "five headers, whatever is allowed", harness.WireBrings(behind(fixtures.FromWire(), client, server, five...)), unreadable)
	cut := harness.WireBrings(behind(fixtures.FromWire(), client, server, four...))
	p.Denies(t, "cut off within the headers", holding(cut, 28), unreadable)
	twice := harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN).Fragment(0, true).Fragment(0, true)
	p.Denies(t, "two fragment headers", harness.WireBrings(twice), badPiece)
	split := harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN).Fragment(0, true).Extend(fixtures.ProtoDstOptions)
	p.Denies(t, "a first piece that ends within its headers", holding(harness.WireBrings(split), 12), badPiece)
}

// Translation needs ports as well, whether or not policies select the pod; XDP passes packets that it cannot parse.
func TestTranslationReadsNoTrailingBytes(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{Services: true})
	fixtures.EachTransportAtXDP(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f, pod := fixtures.FlowOf(family), harness.End{Member: fixtures.PodA, Port: 40000}.At(family)
		p.Enter(t, f, protocol)
		needs := 20
		if protocol == fixtures.ProtoUDP {
			needs = 8
		}
		forth := harness.Run{Program: bpf.ProgWireXdp, In: transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend).Bytes()}
		for _, n := range []int{0, 4, needs - 1} {
			p.CheckOne(t, harness.Untouched(name+" whose header lies behind the packet", holding(forth, n).In))
		}
		short := forth.In
		if family == 4 {
			short = append([]byte{}, short...)
			binary.BigEndian.PutUint16(short[fixtures.EthLen+2:], 19)
			p.CheckOne(t, harness.Untouched(name+" whose IP header lies behind the packet", short))
		}
		first := transport(fixtures.FromPod(), pod, f.Frontend).Payload("12345678").Fragment(0, true)
		p.ClearFragments(t)
		p.Denies(t, name+": a first piece without its header", holding(harness.PodSends(first), needs-1+fragmentHeader(family)), badPiece)
		p.Allows(t, name+": a first piece", harness.PodSends(first))
		if protocol == fixtures.ProtoTCP {
			p.Denies(t, name+": a piece over its header", harness.PodSends(transport(fixtures.FromPod(), pod, f.Frontend).Fragment(16, false)), badPiece)
		}
	})
}
