package fwd_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// Errors about packets of a translated connection are translated, with what they quote: from the backend's side
// to the client, which knows only the frontend, and from the client's side to the backend, which knows only this node.
func TestICMPErrors(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	hop := fixtures.Member{V4: fixtures.Addr("172.30.0.77"), V6: fixtures.Addr("fd00:172:30::77")}
	var cases []harness.PacketCase
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		r.Enter(t, f, protocol)
		tooBig, unreachable := []byte{3, 4}, []byte{3, 3}
		if family == 6 {
			tooBig, unreachable = []byte{2, 0}, []byte{1, 4}
		}
		large := string(netlab.RandomBytes(1200))
		none := fixtures.Eth(fwd.MAC{}, fwd.MAC{})
		sent, asked := transport(none, f.Node, f.Backend), transport(none, f.Client, f.Frontend)      // to the backend
		answer, returned := transport(none, f.Backend, f.Node), transport(none, f.Frontend, f.Client) // to the client
		fromB, fromRouter := fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac), fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac)
		toClient, toBackend := fixtures.Eth(fixtures.NodeA.Mac, fixtures.Router), fixtures.Eth(fixtures.NodeA.Mac, fixtures.NodeB.Mac)
		for _, limit := range []int{28, 60, 548} { // with 28, TCP's checksum is not among them; IPv6 headers are larger
			limit += (family - 4) * 10
			for what, payload := range map[string]string{"": "hello", ", large": large} {
				at := fmt.Sprintf("%s, %d bytes quoted%s: ", name, limit, what)
				add := func(what string, in, out fixtures.Packet) {
					cases = append(cases, harness.PacketCase{Name: at + what, Verdict: harness.VerdictRedirect,
						Run: harness.Run{Program: bpf.ProgFromWire, In: in.Bytes()}, Out: out.Ttl(63).Bytes()})
				}
				add("too big for a router at the backend's side",
					fixtures.Quoting(fromB, hop.Addr(family), f.Node.Addr(), tooBig[0], tooBig[1], 1300, sent.Payload(payload), limit),
					fixtures.Quoting(toClient, hop.Addr(family), f.Client.Addr(), tooBig[0], tooBig[1], 1300, asked.Payload(payload), limit))
				add("rejected by the backend",
					fixtures.Quoting(fromB, f.Backend.Addr(), f.Node.Addr(), unreachable[0], unreachable[1], 0, sent.Payload(payload), limit),
					fixtures.Quoting(toClient, f.Frontend.Addr(), f.Client.Addr(), unreachable[0], unreachable[1], 0, asked.Payload(payload), limit))
				add("too big for a router at the client's side",
					fixtures.Quoting(fromRouter, hop.Addr(family), f.Frontend.Addr(), tooBig[0], tooBig[1], 1300, returned.Payload(payload), limit),
					fixtures.Quoting(toBackend, hop.Addr(family), f.Backend.Addr(), tooBig[0], tooBig[1], 1300, answer.Payload(payload), limit))
				add("rejected by the client",
					fixtures.Quoting(fromRouter, f.Client.Addr(), f.Frontend.Addr(), unreachable[0], unreachable[1], 0, returned.Payload(payload), limit),
					fixtures.Quoting(toBackend, f.Node.Addr(), f.Backend.Addr(), unreachable[0], unreachable[1], 0, answer.Payload(payload), limit))
			}
		}
		stranger := transport(none, netip.AddrPortFrom(f.Node.Addr(), 51000), f.Backend)
		cases = append(cases,
			harness.Passes(name+": about a packet of no connection", harness.Run{Program: bpf.ProgFromWire,
				In: fixtures.Quoting(fromB, hop.Addr(family), f.Node.Addr(), tooBig[0], tooBig[1], 1300, stranger, 548).Bytes()}),
			harness.Passes(name+": at XDP", harness.Run{Program: bpf.ProgWireXdp,
				In: fixtures.Quoting(fromB, hop.Addr(family), f.Node.Addr(), tooBig[0], tooBig[1], 1300, sent, 548).Bytes()}),
		)
	})
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if c.Verdict != harness.VerdictRedirect {
				r.CheckOne(t, c)
				return
			}
			// About once in a second, and on each CPU, a packet goes by the kernel's neighbour table, which shows no MACs here.
			var got harness.Outcome
			var err error
			for range 20 {
				r.Netns.Do(func() { got, err = r.Run(c.Run) })
				if err != nil || !bytes.Equal(got.Out[:12], c.In[:12]) {
					break
				}
			}
			if err != nil || got.Verdict != c.Verdict {
				t.Fatalf("verdict %s, expected %s (%v)", got.Verdict, c.Verdict, err)
			}
			fixtures.SamePacket(t, c.Out, got.Out)
		})
	}
}
