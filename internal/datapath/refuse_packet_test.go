package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TCP flags as they are in the header's 14th byte.
const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpPSH = 0x08
	tcpACK = 0x10
)

// segment gives the TCP header of a packet other flags and numbers; the window of a reset is 0.
func (p packet) segment(flags byte, sequence, acknowledgement uint32) packet {
	p.transport = append([]byte{}, p.transport...)
	binary.BigEndian.PutUint32(p.transport[4:], sequence)
	binary.BigEndian.PutUint32(p.transport[8:], acknowledgement)
	p.transport[13] = flags
	if flags&tcpRST != 0 {
		binary.BigEndian.PutUint16(p.transport[14:], 0)
	}
	return p
}

// reset is the reset that answers a packet, whose Ethernet and IP addresses are in.
func reset(in packet, flags byte, sequence, acknowledgement uint32) packet {
	source, destination := binary.BigEndian.Uint16(in.transport), binary.BigEndian.Uint16(in.transport[2:])
	p := eth(in.dstMAC, in.srcMAC).ip(in.dst, in.src).tcp(destination, source).segment(flags, sequence, acknowledgement)
	p.ident = 0
	return p
}

// errorAbout is the ICMP error that answers a packet, of which it quotes as much as may be (RFC 1812, 4.3.2.3 and RFC 4443,
// 2.4 (c)); value is the second word of its header.
func errorAbout(in packet, kind, code byte, value uint32) []byte {
	quoted := in.bytes()[ethLen:]
	limit := 576 - ipv4Len - 8
	if !in.is4() {
		limit = 1280 - ipv6Len - 8
	}
	quoted = quoted[:min(limit, len(quoted))]
	p := eth(in.dstMAC, in.srcMAC).ip(in.dst, in.src).icmp(kind, code).payload(string(quoted))
	p.ident = 0
	binary.BigEndian.PutUint32(p.transport[4:], value)
	b := p.bytes()
	if in.is4() { // internetwork control, which the builder does not know
		b[ethLen+1] = 0xc0
		binary.BigEndian.PutUint16(b[ethLen+10:], 0)
		binary.BigEndian.PutUint16(b[ethLen+10:], ^checksum(b[ethLen:ethLen+ipv4Len]))
	}
	return b
}

// unreachable is the answer to a datagram for a port that nobody serves.
func unreachable(in packet) []byte {
	if in.is4() {
		return errorAbout(in, 3, 3, 0)
	}
	return errorAbout(in, 1, 4, 0)
}

func answered(name string, in run, out []byte) packetCase {
	return packetCase{name: name, run: in, verdict: verdictRedirect, out: out}
}

// A Service without endpoints refuses: what comes from the wire goes back there, what comes from a pod back into the pod.
func TestRefuse(t *testing.T) {
	r := newServiceRig(t, Config{})
	unanswered := uint32(bpfDropReasonDROP_ICMP_RATELIMITED)
	var cases []packetCase
	for _, family := range families {
		frontend := netip.AddrPortFrom(nodeA.addr(family), 30099)
		r.serve(t, frontend, 0)
		for _, from := range []struct {
			name, program, device string
			begin                 packet
			client                netip.Addr
		}{
			{"the wire", bpfProgFromWire, "eth0", eth(router, nodeA.mac), world.addr(family)},
			{"a pod", bpfProgFromPod, "blpoda", fromPod(), podA.addr(family)},
		} {
			name := fmt.Sprintf("IPv%d from %s: ", family, from.name)
			in := func(p packet) run { return run{program: from.program, device: from.device, in: p.bytes()} }
			tcp := from.begin.ip(from.client, frontend.Addr()).tcp(40001, frontend.Port())
			udp := from.begin.ip(from.client, frontend.Addr()).udp(40001, frontend.Port())
			sctp := from.begin.ip(from.client, frontend.Addr()).sctp(40001, frontend.Port()).chunk(sctpInit).payload("its parameters")
			syn := tcp.segment(tcpSYN, 1000, 0)
			cases = append(cases,
				answered(name+"SYN", in(syn), reset(syn, tcpRST|tcpACK, 0, 1001).bytes()),
				answered(name+"SYN whose number is the last", in(tcp.segment(tcpSYN, 0xffffffff, 0)), reset(syn, tcpRST|tcpACK, 0, 0).bytes()),
				answered(name+"SYN with data", in(syn.payload("12345")), reset(syn, tcpRST|tcpACK, 0, 1006).bytes()),
				answered(name+"FIN without ACK", in(tcp.segment(tcpFIN, 7, 0).payload("123")), reset(tcp, tcpRST|tcpACK, 0, 11).bytes()),
				answered(name+"SYN and ACK", in(tcp.segment(tcpSYN|tcpACK, 1000, 77)), reset(tcp, tcpRST, 77, 0).bytes()),
				answered(name+"data", in(tcp.segment(tcpPSH|tcpACK, 1000, 78).payload("hello")), reset(tcp, tcpRST, 78, 0).bytes()),
				drops(name+"RST", in(tcp.segment(tcpRST, 1000, 0)), unanswered),
				drops(name+"RST and ACK", in(tcp.segment(tcpRST|tcpACK, 1000, 5)), unanswered),
				answered(name+"empty datagram", in(udp), unreachable(udp)),
				answered(name+"INIT of SCTP", in(sctp), unreachable(sctp)),
			)
			for _, size := range []int{1, 2, 3, 4, 31, 32, 33, 519, 520, 521, 1100, 1183, 1184, 1185, 1300} {
				p := udp.payload(string(randomBytes(size)))
				cases = append(cases, answered(fmt.Sprintf("%sdatagram of %d bytes", name, size), in(p), unreachable(p)))
			}
			options := tcp
			options.transport = append(append([]byte{}, syn.transport...), 2, 4, 5, 0xb4, 1, 1, 1, 0)
			options.transport[12] = 7 << 4
			cases = append(cases, answered(name+"SYN with options", in(options), reset(syn, tcpRST|tcpACK, 0, 1001).bytes()))
		}
	}
	r.check(t, cases)
}

// Answers go to one host.
func TestRefuseGroups(t *testing.T) {
	r := newServiceRig(t, Config{})
	frontend := netip.AddrPortFrom(nodeA.v4, 30099)
	r.serve(t, frontend, 0)
	for _, source := range []string{"224.0.0.5", "255.255.255.255", "169.254.3.4", "0.0.0.0"} {
		p := eth(router, nodeA.mac).ipv4(addr(source), frontend.Addr())
		for _, p := range []packet{p.udp(1, frontend.Port()), p.tcp(1, frontend.Port()).segment(tcpSYN, 1, 0)} {
			r.checkOne(t, drops("", run{program: bpfProgFromWire, in: p.bytes()}, uint32(bpfDropReasonDROP_ICMP_RATELIMITED)))
		}
	}
}

// Who is outside is sent so many errors in a second; what is left over is dropped and counted. Resets have no limit.
func TestRefuseLimit(t *testing.T) {
	r := newServiceRig(t, Config{})
	frontend := netip.AddrPortFrom(nodeA.v4, 30099)
	r.serve(t, frontend, 0)
	const limit, left, packets = 100, 5, 50
	udp := eth(router, nodeA.mac).ipv4(world.v4, frontend.Addr()).udp(1, frontend.Port())
	syn := eth(router, nodeA.mac).ipv4(world.v4, frontend.Addr()).tcp(1, frontend.Port()).segment(tcpSYN, 1, 0)
	r.checkOne(t, answered("the first one", wireBrings(udp), unreachable(udp)))
	verdicts := map[verdict]int{}
	for took := time.Second; took >= time.Second && !t.Failed(); { // else the next second has begun
		clear(verdicts)
		r.refused(t, 100*time.Millisecond, limit-left)
		began := time.Now()
		r.stage.do(func() {
			for i := range 2 * packets {
				got, err := r.run(run{program: bpfProgFromWire, in: []packet{udp, syn}[i%2].bytes()})
				if err != nil {
					t.Error(err)
					return
				}
				verdicts[got.verdict]++
			}
		})
		took = time.Since(began) + 200*time.Millisecond
	}
	if verdicts[verdictRedirect] != packets+left || verdicts[verdictDrop] != packets-left {
		t.Errorf("of %d datagrams and %d SYN %d were answered and %d dropped", packets, packets, verdicts[verdictRedirect], verdicts[verdictDrop])
	}
	r.refused(t, time.Second+100*time.Millisecond, limit)
	r.checkOne(t, answered("in the next second", wireBrings(udp), unreachable(udp)))
}

// A pod of another node uses up nothing of its neighbours there, which have the same prefix; addresses of the world with one prefix share.
func TestRefuseLimitOfEach(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		frontend := netip.AddrPortFrom(nodeA.addr(family), 30099)
		r.serve(t, frontend, 0)
		asks := func(from netip.Addr) packet {
			return eth(router, nodeA.mac).ip(from, frontend.Addr()).udp(1, frontend.Port())
		}
		for name, c := range map[string]struct {
			from   netip.Addr
			shared bool
		}{
			"another node's pods": {from: podB.addr(family)},
			"the world":           {from: world.addr(family), shared: true},
		} {
			r.stage.do(func() { _, _ = r.run(wireBrings(asks(c.from))) })
			r.refused(t, 100*time.Millisecond, 100)
			got := verdicts(t, r, asks(c.from), asks(c.from.Next()))
			if got[0] != verdictDrop || (got[1] == verdictDrop) != c.shared {
				t.Errorf("IPv%d, %s: verdicts %v; its neighbour shares: %t", family, name, got, c.shared)
			}
		}
	}
}

// verdicts are those of packets that the wire brings.
func verdicts(tb testing.TB, r *rig, packets ...packet) (all []verdict) {
	tb.Helper()
	r.stage.do(func() {
		for _, p := range packets {
			got, err := r.run(wireBrings(p))
			if err != nil {
				tb.Error(err)
			}
			all = append(all, got.verdict)
		}
	})
	return all
}

// refused makes those outside have been sent so many errors, of one that has one address, in a second that began some time ago.
func (r *rig) refused(tb testing.TB, ago time.Duration, sent uint64) {
	tb.Helper()
	now, err := Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	var keys []bpfIcmpRatelimitKey
	if err := readAll(r.d.objects.maps.IcmpRatelimit, func(k *bpfIcmpRatelimitKey, _ *bpfIcmpRatelimitEntry) { keys = append(keys, *k) }); err != nil {
		tb.Fatal(err)
	}
	for _, k := range keys {
		if err := r.d.objects.maps.IcmpRatelimit.Put(k, bpfIcmpRatelimitEntry{Since: uint64(now - ago), Sent: sent}); err != nil {
			tb.Fatal(err)
		}
	}
}
