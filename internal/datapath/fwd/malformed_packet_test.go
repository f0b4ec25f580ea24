package fwd_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// Each case breaks one field of a valid packet. Programs of a pod drop it. What the wire programs cannot parse is left
// to the kernel stack; to_wire looks only where it translates. BPF_PROG_TEST_RUN rejects packets that are shorter than
// their IP header: TestTruncated sends them.
func TestMalformed(t *testing.T) {
	malformed := uint32(bpf.DropReasonDROP_MALFORMED)
	type breakage struct {
		name   string
		in     []byte
		reason uint32
	}
	var broken []breakage
	add := func(name string, reason uint32, p fixtures.Packet) {
		broken = append(broken, breakage{name, p.Bytes(), reason})
	}
	v4, v6 := fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Udp(1, 2).Payload("hi"), fixtures.FromPod().Ipv6(fixtures.PodA.V6, fixtures.PodB.V6).Udp(1, 2).Payload("hi")
	for version := range uint8(16) {
		if version != 4 {
			p := v4.Ether(fixtures.EtherIPv4)
			p.Version = version
			add(fmt.Sprintf("IPv4 with version %d", version), malformed, p)
		}
		if version != 6 {
			p := v6.Ether(fixtures.EtherIPv6)
			p.Version = version
			add(fmt.Sprintf("IPv6 with version %d", version), malformed, p)
		}
	}
	for ihl := range 5 {
		b := v4.Bytes()
		b[fixtures.EthLen] = 0x40 | byte(ihl)
		broken = append(broken, breakage{fmt.Sprintf("IPv4 with a header of %d words", ihl), b, malformed})
	}

	for _, cfg := range fixtures.EveryConfig() {
		var cases []harness.PacketCase
		for _, b := range broken {
			for _, program := range harness.FramePrograms() {
				in := harness.Run{Program: program, Device: "blpoda", In: b.in}
				name := b.name + " at " + program
				switch {
				case slices.Contains(bpf.MacvlanPrograms, program):
					continue // the MAC comes first: see TestMacvlanAttacks
				case program == bpf.ProgFromWire, program == bpf.ProgWireXdp, program == bpf.ProgToWire && !cfg.Masquerade && !cfg.Services:
					cases = append(cases, harness.Passes(name, in))
				default:
					cases = append(cases, harness.Drops(name, in, b.reason))
				}
			}
		}
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			r := harness.New(t, cfg)
			for _, c := range cases { // too many for a subtest each
				r.CheckOne(t, c)
				if t.Failed() {
					t.Fatalf("case: %s", c.Name)
				}
			}
		})
	}
}

// A packet that ends right behind its IP header is whole as far as routing is concerned.
func TestHeaderOnly(t *testing.T) {
	harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true}).Check(t, []harness.PacketCase{
		harness.Wired("IPv4", fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Raw(59, nil)),
		harness.Wired("IPv6", fixtures.FromPod().Ipv6(fixtures.PodA.V6, fixtures.PodB.V6).Raw(59, nil)),
		harness.Wired("IPv4 UDP header cut short", fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Raw(fixtures.ProtoUDP, []byte{0, 1, 0, 2}).Payload("xx")),
		harness.Wired("IPv4 TCP header cut short", fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Raw(fixtures.ProtoTCP, []byte{0, 1, 0, 2})),
	})
}
