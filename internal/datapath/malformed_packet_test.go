package datapath

import (
	"fmt"
	"testing"
)

// Each takes a packet that is right and breaks one thing. Programs that speak for a pod drop it; what cannot be
// read on the wire is the stack's to judge; to_wire looks only where it translates. BPF_PROG_TEST_RUN
// refuses packets that are shorter than their IP header: TestTruncated sends them.
func TestMalformed(t *testing.T) {
	malformed := uint32(bpfDropReasonDROP_MALFORMED)
	type breakage struct {
		name   string
		in     []byte
		reason uint32
	}
	var broken []breakage
	add := func(name string, reason uint32, p packet) {
		broken = append(broken, breakage{name, p.bytes(), reason})
	}
	v4, v6 := fromPod().ipv4(podA.v4, podB.v4).udp(1, 2).payload("hi"), fromPod().ipv6(podA.v6, podB.v6).udp(1, 2).payload("hi")
	for version := range uint8(16) {
		if version != 4 {
			p := v4.ether(etherIPv4)
			p.version = version
			add(fmt.Sprintf("IPv4 with version %d", version), malformed, p)
		}
		if version != 6 {
			p := v6.ether(etherIPv6)
			p.version = version
			add(fmt.Sprintf("IPv6 with version %d", version), malformed, p)
		}
	}
	for ihl := range 5 {
		b := v4.bytes()
		b[ethLen] = 0x40 | byte(ihl)
		broken = append(broken, breakage{fmt.Sprintf("IPv4 with a header of %d words", ihl), b, malformed})
	}

	for _, cfg := range everyConfig() {
		var cases []packetCase
		for _, b := range broken {
			for _, program := range programNames {
				in := run{program: program, device: "blpoda", in: b.in}
				name := b.name + " at " + program
				switch {
				case program == bpfProgFromWire, program == bpfProgWireXdp, program == bpfProgToWire && !cfg.Masquerade && !cfg.Services:
					cases = append(cases, passes(name, in))
				default:
					cases = append(cases, drops(name, in, b.reason))
				}
			}
		}
		t.Run(cfgName(cfg), func(t *testing.T) {
			r := newRig(t, cfg)
			for _, c := range cases { // too many for a subtest each
				r.checkOne(t, c)
				if t.Failed() {
					t.Fatalf("case: %s", c.name)
				}
			}
		})
	}
}

// A packet that ends right behind its IP header is whole as far as routing is concerned.
func TestHeaderOnly(t *testing.T) {
	newRig(t, Config{EBPFRouting: true, Masquerade: true}).check(t, []packetCase{
		wired("IPv4", fromPod().ipv4(podA.v4, podB.v4).raw(59, nil)),
		wired("IPv6", fromPod().ipv6(podA.v6, podB.v6).raw(59, nil)),
		wired("IPv4 UDP header cut short", fromPod().ipv4(podA.v4, podB.v4).raw(protoUDP, []byte{0, 1, 0, 2}).payload("xx")),
		wired("IPv4 TCP header cut short", fromPod().ipv4(podA.v4, podB.v4).raw(protoTCP, []byte{0, 1, 0, 2})),
	})
}
