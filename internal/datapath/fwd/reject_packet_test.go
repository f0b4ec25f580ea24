package fwd_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// reset is the RST that replies to a packet, whose Ethernet and IP addresses are in.
func reset(in fixtures.Packet, flags byte, sequence, acknowledgement uint32) fixtures.Packet {
	source, destination := binary.BigEndian.Uint16(in.Transport), binary.BigEndian.Uint16(in.Transport[2:])
	p := fixtures.Eth(in.DstMAC, in.SrcMAC).Ip(in.Dst, in.Src).Tcp(destination, source).Segment(flags, sequence, acknowledgement)
	p.Ident = 0
	return p
}

// unreachable is the reply to a datagram for a closed port.
func unreachable(in fixtures.Packet) []byte {
	if in.Is4() {
		return fixtures.ErrorAbout(in, 3, 3, 0)
	}
	return fixtures.ErrorAbout(in, 1, 4, 0)
}

// A Service without endpoints rejects: the error goes back to the wire, or back into the pod that sent the packet.
func TestReject(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	rateLimited := uint32(bpf.DropReasonDROP_ICMP_RATELIMITED)
	var cases []harness.PacketCase
	for _, family := range fixtures.Families {
		frontend := netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30099)
		r.Serve(t, frontend, 0)
		for _, from := range []struct {
			name, program, device string
			begin                 fixtures.Packet
			client                netip.Addr
		}{
			{"the wire", bpf.ProgFromWire, "eth0", fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), fixtures.External.Addr(family)},
			{"a pod", bpf.ProgFromPod, "blpoda", fixtures.FromPod(), fixtures.PodA.Addr(family)},
		} {
			name := fmt.Sprintf("IPv%d from %s: ", family, from.name)
			in := func(p fixtures.Packet) harness.Run {
				return harness.Run{Program: from.program, Device: from.device, In: p.Bytes()}
			}
			tcp := from.begin.Ip(from.client, frontend.Addr()).Tcp(40001, frontend.Port())
			udp := from.begin.Ip(from.client, frontend.Addr()).Udp(40001, frontend.Port())
			sctp := from.begin.Ip(from.client, frontend.Addr()).Sctp(40001, frontend.Port()).Chunk(fixtures.SctpInit).Payload("its parameters")
			syn := tcp.Segment(fixtures.TcpSYN, 1000, 0)
			cases = append(cases,
				harness.Answered(name+"SYN", in(syn), reset(syn, fixtures.TcpRST|fixtures.TcpACK, 0, 1001).Bytes()),
				harness.Answered(name+"SYN whose number is the last", in(tcp.Segment(fixtures.TcpSYN, 0xffffffff, 0)), reset(syn, fixtures.TcpRST|fixtures.TcpACK, 0, 0).Bytes()),
				harness.Answered(name+"SYN with data", in(syn.Payload("12345")), reset(syn, fixtures.TcpRST|fixtures.TcpACK, 0, 1006).Bytes()),
				harness.Answered(name+"FIN without ACK", in(tcp.Segment(fixtures.TcpFIN, 7, 0).Payload("123")), reset(tcp, fixtures.TcpRST|fixtures.TcpACK, 0, 11).Bytes()),
				harness.Answered(name+"SYN and ACK", in(tcp.Segment(fixtures.TcpSYN|fixtures.TcpACK, 1000, 77)), reset(tcp, fixtures.TcpRST, 77, 0).Bytes()),
				harness.Answered(name+"data", in(tcp.Segment(fixtures.TcpPSH|fixtures.TcpACK, 1000, 78).Payload("hello")), reset(tcp, fixtures.TcpRST, 78, 0).Bytes()),
				harness.Drops(name+"RST", in(tcp.Segment(fixtures.TcpRST, 1000, 0)), rateLimited),
				harness.Drops(name+"RST and ACK", in(tcp.Segment(fixtures.TcpRST|fixtures.TcpACK, 1000, 5)), rateLimited),
				harness.Answered(name+"empty datagram", in(udp), unreachable(udp)),
				harness.Answered(name+"INIT of SCTP", in(sctp), unreachable(sctp)),
			)
			for _, size := range []int{1, 2, 3, 4, 31, 32, 33, 519, 520, 521, 1100, 1183, 1184, 1185, 1300} {
				p := udp.Payload(string(netlab.RandomBytes(size)))
				cases = append(cases, harness.Answered(fmt.Sprintf("%sdatagram of %d bytes", name, size), in(p), unreachable(p)))
			}
			options := tcp
			options.Transport = append(append([]byte{}, syn.Transport...), 2, 4, 5, 0xb4, 1, 1, 1, 0)
			options.Transport[12] = 7 << 4
			cases = append(cases, harness.Answered(name+"SYN with options", in(options), reset(syn, fixtures.TcpRST|fixtures.TcpACK, 0, 1001).Bytes()))
		}
	}
	r.Check(t, cases)
}

// Errors go to one host.
func TestRejectGroups(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	frontend := netip.AddrPortFrom(fixtures.NodeA.V4, 30099)
	r.Serve(t, frontend, 0)
	for _, source := range []string{"224.0.0.5", "255.255.255.255", "169.254.3.4", "0.0.0.0"} {
		p := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ipv4(fixtures.Addr(source), frontend.Addr())
		for _, p := range []fixtures.Packet{p.Udp(1, frontend.Port()), p.Tcp(1, frontend.Port()).Segment(fixtures.TcpSYN, 1, 0)} {
			r.CheckOne(t, harness.Drops("", harness.Run{Program: bpf.ProgFromWire, In: p.Bytes()}, uint32(bpf.DropReasonDROP_ICMP_RATELIMITED)))
		}
	}
}

// Who is outside is sent so many errors in a second; what is left over is dropped and counted. Resets have no limit.
func TestRejectLimit(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	frontend := netip.AddrPortFrom(fixtures.NodeA.V4, 30099)
	r.Serve(t, frontend, 0)
	const limit, left, packets = 100, 5, 50
	udp := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ipv4(fixtures.External.V4, frontend.Addr()).Udp(1, frontend.Port())
	syn := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ipv4(fixtures.External.V4, frontend.Addr()).Tcp(1, frontend.Port()).Segment(fixtures.TcpSYN, 1, 0)
	r.CheckOne(t, harness.Answered("the first one", harness.WireBrings(udp), unreachable(udp)))
	verdicts := map[harness.Verdict]int{}
	for took := time.Second; took >= time.Second && !t.Failed(); { // else the next second has begun
		clear(verdicts)
		rejected(r, t, 100*time.Millisecond, limit-left)
		began := time.Now()
		r.Netns.Do(func() {
			for i := range 2 * packets {
				got, err := r.Run(harness.Run{Program: bpf.ProgFromWire, In: []fixtures.Packet{udp, syn}[i%2].Bytes()})
				if err != nil {
					t.Error(err)
					return
				}
				verdicts[got.Verdict]++
			}
		})
		took = time.Since(began) + 200*time.Millisecond
	}
	if verdicts[harness.VerdictRedirect] != packets+left || verdicts[harness.VerdictDrop] != packets-left {
		t.Errorf("of %d datagrams and %d SYN %d got errors and %d were dropped", packets, packets, verdicts[harness.VerdictRedirect], verdicts[harness.VerdictDrop])
	}
	rejected(r, t, time.Second+100*time.Millisecond, limit)
	r.CheckOne(t, harness.Answered("in the next second", harness.WireBrings(udp), unreachable(udp)))
}

// A pod of another node uses up no quota of its neighbours with the same prefix; external addresses with one prefix
// share a quota.
func TestRejectLimitOfEach(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		frontend := netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30099)
		r.Serve(t, frontend, 0)
		asks := func(from netip.Addr) fixtures.Packet {
			return fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(from, frontend.Addr()).Udp(1, frontend.Port())
		}
		for name, c := range map[string]struct {
			from   netip.Addr
			shared bool
		}{
			"another node's pods": {from: fixtures.PodB.Addr(family)},
			"an external host":    {from: fixtures.External.Addr(family), shared: true},
		} {
			r.Netns.Do(func() { _, _ = r.Run(harness.WireBrings(asks(c.from))) })
			rejected(r, t, 100*time.Millisecond, 100)
			got := verdicts(t, r, asks(c.from), asks(c.from.Next()))
			if got[0] != harness.VerdictDrop || (got[1] == harness.VerdictDrop) != c.shared {
				t.Errorf("IPv%d, %s: verdicts %v; its neighbour shares: %t", family, name, got, c.shared)
			}
		}
	}
}

// verdicts are those of packets that the wire brings.
func verdicts(tb testing.TB, r *harness.Harness, packets ...fixtures.Packet) (all []harness.Verdict) {
	tb.Helper()
	r.Netns.Do(func() {
		for _, p := range packets {
			got, err := r.Run(harness.WireBrings(p))
			if err != nil {
				tb.Error(err)
			}
			all = append(all, got.Verdict)
		}
	})
	return all
}

// rejected sets how many errors external clients, or one of them, have got in a second that began some time ago.
func rejected(r *harness.Harness, tb testing.TB, ago time.Duration, sent uint64) {
	tb.Helper()
	now, err := table.Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	var keys []bpf.IcmpRatelimitKey
	if err := table.Read(r.D.Objects.Maps.IcmpRatelimit, func(k *bpf.IcmpRatelimitKey, _ *bpf.IcmpRatelimitEntry) { keys = append(keys, *k) }); err != nil {
		tb.Fatal(err)
	}
	for _, k := range keys {
		if err := r.D.Objects.Maps.IcmpRatelimit.Put(k, bpf.IcmpRatelimitEntry{Since: uint64(now - ago), Sent: sent}); err != nil {
			tb.Fatal(err)
		}
	}
}
