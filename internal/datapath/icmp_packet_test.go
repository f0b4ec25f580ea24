package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
)

// quoting is an ICMP error in a frame, between two hosts, about a packet, of which it quotes at most so many bytes.
func quoting(frame packet, from, to netip.Addr, kind, code byte, value uint32, about packet, limit int) packet {
	quoted := about.bytes()[ethLen:]
	p := frame.ip(from, to).icmp(kind, code).payload(string(quoted[:min(limit, len(quoted))]))
	binary.BigEndian.PutUint32(p.transport[4:], value)
	return p
}

// Errors about packets of a translated connection are translated, with what they quote: from the backend's side
// to the client, which knows only the frontend, and from the client's side to the backend, which knows only this node.
func TestICMPErrors(t *testing.T) {
	r := newServiceRig(t, Config{})
	hop := member{v4: addr("172.30.0.77"), v6: addr("fd00:172:30::77")}
	var cases []packetCase
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		r.enter(t, f, protocol)
		tooBig, unreachable := []byte{3, 4}, []byte{3, 3}
		if family == 6 {
			tooBig, unreachable = []byte{2, 0}, []byte{1, 4}
		}
		large := string(randomBytes(1200))
		none := eth(MAC{}, MAC{})
		sent, asked := transport(none, f.node, f.backend), transport(none, f.client, f.frontend)      // to the backend
		answer, returned := transport(none, f.backend, f.node), transport(none, f.frontend, f.client) // to the client
		fromB, fromRouter := eth(nodeB.mac, nodeA.mac), eth(router, nodeA.mac)
		toClient, toBackend := eth(nodeA.mac, router), eth(nodeA.mac, nodeB.mac)
		for _, limit := range []int{28, 60, 548} { // with 28, TCP's checksum is not among them; IPv6 headers are larger
			limit += (family - 4) * 10
			for what, payload := range map[string]string{"": "hello", ", large": large} {
				at := fmt.Sprintf("%s, %d bytes quoted%s: ", name, limit, what)
				add := func(what string, in, out packet) {
					cases = append(cases, packetCase{name: at + what, verdict: verdictRedirect,
						run: run{program: bpfProgFromWire, in: in.bytes()}, out: out.ttl(63).bytes()})
				}
				add("too big for a router at the backend's side",
					quoting(fromB, hop.addr(family), f.node.Addr(), tooBig[0], tooBig[1], 1300, sent.payload(payload), limit),
					quoting(toClient, hop.addr(family), f.client.Addr(), tooBig[0], tooBig[1], 1300, asked.payload(payload), limit))
				add("refused by the backend",
					quoting(fromB, f.backend.Addr(), f.node.Addr(), unreachable[0], unreachable[1], 0, sent.payload(payload), limit),
					quoting(toClient, f.frontend.Addr(), f.client.Addr(), unreachable[0], unreachable[1], 0, asked.payload(payload), limit))
				add("too big for a router at the client's side",
					quoting(fromRouter, hop.addr(family), f.frontend.Addr(), tooBig[0], tooBig[1], 1300, returned.payload(payload), limit),
					quoting(toBackend, hop.addr(family), f.backend.Addr(), tooBig[0], tooBig[1], 1300, answer.payload(payload), limit))
				add("refused by the client",
					quoting(fromRouter, f.client.Addr(), f.frontend.Addr(), unreachable[0], unreachable[1], 0, returned.payload(payload), limit),
					quoting(toBackend, f.node.Addr(), f.backend.Addr(), unreachable[0], unreachable[1], 0, answer.payload(payload), limit))
			}
		}
		stranger := transport(none, netip.AddrPortFrom(f.node.Addr(), 51000), f.backend)
		cases = append(cases,
			passes(name+": about a packet of no connection", run{program: bpfProgFromWire,
				in: quoting(fromB, hop.addr(family), f.node.Addr(), tooBig[0], tooBig[1], 1300, stranger, 548).bytes()}),
			passes(name+": at XDP", run{program: bpfProgWireXdp,
				in: quoting(fromB, hop.addr(family), f.node.Addr(), tooBig[0], tooBig[1], 1300, sent, 548).bytes()}),
		)
	})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.verdict != verdictRedirect {
				r.checkOne(t, c)
				return
			}
			// About once in a second, and on each CPU, a packet goes by the kernel's neighbour table, which shows no MACs here.
			var got outcome
			var err error
			for range 20 {
				r.stage.do(func() { got, err = r.run(c.run) })
				if err != nil || !bytes.Equal(got.out[:12], c.in[:12]) {
					break
				}
			}
			if err != nil || got.verdict != c.verdict {
				t.Fatalf("verdict %s, expected %s (%v)", got.verdict, c.verdict, err)
			}
			samePacket(t, c.out, got.out)
		})
	}
}
