package datapath

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
)

func podSends(p packet) run {
	return run{program: bpfProgFromPod, device: "blpoda", in: p.bytes()}
}

// wired is a packet of podA that leaves through the uplink towards node B, with the cached link-layer header.
func wired(name string, p packet) packetCase {
	return packetCase{name: name, run: podSends(p), verdict: verdictRedirect,
		out: p.macs(nodeA.mac, nodeB.mac).ttl(p.hops - 1).bytes()}
}

// resolved is the same by the kernel's neighbour table, which writes the link-layer header after the program.
func resolved(name string, p packet) packetCase {
	return packetCase{name: name, run: podSends(p), verdict: verdictRedirect, out: p.ttl(p.hops - 1).bytes()}
}

func TestFromPodRoutes(t *testing.T) {
	var cases []packetCase
	each(func(name string, family int, transport func(packet) packet) {
		to := func(dst member) packet {
			return transport(fromPod().ip(podA.addr(family), dst.addr(family)))
		}
		cases = append(cases,
			delivered(name+" to a pod here", podSends(to(podA2)), to(podA2), podA2),
			passes(name+" to the pod itself", podSends(to(podA))),
			passes(name+" to a pod address that no pod has", podSends(to(ghost))),
			wired(name+" to a pod on a resolved node", to(podB)),
			resolved(name+" to a pod on an unresolved node", to(podC)),
			wired(name+" to another node", to(nodeB)),
			passes(name+" to a pod behind a router", podSends(to(podFar))),
			passes(name+" to its own node", podSends(to(nodeA))),
			passes(name+" to the world", podSends(to(world))),
		)
		for _, dst := range []struct {
			name string
			member
		}{{"a pod here", podA2}, {"a pod on another node", podB}, {"a pod on an unresolved node", podC}} {
			cases = append(cases,
				passes(fmt.Sprintf("%s to %s, its last hop", name, dst.name), podSends(to(dst.member).ttl(1))),
				passes(fmt.Sprintf("%s to %s, no hop left", name, dst.name), podSends(to(dst.member).ttl(0))),
			)
		}
		cases = append(cases,
			delivered(name+" to a pod here, two hops left", podSends(to(podA2)), to(podA2).ttl(2), podA2),
			wired(name+" to a pod on another node, two hops left", to(podB).ttl(2)),
			wired(name+" to a pod on another node, all hops left", to(podB).ttl(255)),
		)
	})
	newRig(t, Config{EBPFRouting: true, Masquerade: true}).check(t, cases)
}

func TestFromPodWithoutLease(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	if err := r.d.Lease.Revoke(); err != nil {
		t.Fatal(err)
	}
	var cases []packetCase
	each(func(name string, family int, transport func(packet) packet) {
		p := transport(fromPod().ip(podA.addr(family), podB.addr(family)))
		cases = append(cases, resolved(name, p))
	})
	r.check(t, cases)
}

// Masquerading does not concern packets that leave a pod.
func TestFromPodWithoutMasquerading(t *testing.T) {
	var cases []packetCase
	each(func(name string, family int, transport func(packet) packet) {
		p := fromPod()
		cases = append(cases,
			delivered(name+" to a pod here", podSends(transport(p.ip(podA.addr(family), podA2.addr(family)))), transport(p.ip(podA.addr(family), podA2.addr(family))), podA2),
			wired(name+" to a pod on another node", transport(p.ip(podA.addr(family), podB.addr(family)))),
			passes(name+" to the world", podSends(transport(p.ip(podA.addr(family), world.addr(family))))),
		)
	})
	newRig(t, Config{EBPFRouting: true}).check(t, cases)
}

// With kernel routing, what a pod may send goes to the stack, and the rest is dropped all the same.
func TestFromPodKernelRouting(t *testing.T) {
	var cases []packetCase
	each(func(name string, family int, transport func(packet) packet) {
		for _, dst := range []member{podA, podA2, ghost, podB, podC, nodeA, nodeB, world} {
			p := transport(fromPod().ip(podA.addr(family), dst.addr(family)))
			cases = append(cases, passes(fmt.Sprintf("%s to %s", name, dst.addr(family)), podSends(p)))
		}
		p := transport(fromPod().ip(podA2.addr(family), podB.addr(family)))
		cases = append(cases, drops(name+" spoofed", podSends(p), uint32(bpfDropReasonDROP_SPOOFED_SOURCE)))
	})
	newRig(t, Config{Masquerade: true}).check(t, cases)
}

// Only the stack interprets IPv4 options and hop-by-hop headers. Other extension headers and fragments are
// none of a router's business and take the fast path.
func TestFromPodExceptions(t *testing.T) {
	v4 := func(dst member) packet { return fromPod().ipv4(podA.v4, dst.v4) }
	v6 := func(dst member) packet { return fromPod().ipv6(podA.v6, dst.v6) }
	routerAlert := []byte{0x94, 4, 0, 0}
	var cases []packetCase
	for _, dst := range []struct {
		name string
		member
		redirected func(name string, p packet) packetCase
	}{
		{"a pod here", podA2, func(name string, p packet) packetCase { return delivered(name, podSends(p), p, podA2) }},
		{"a pod on another node", podB, wired},
		{"a pod on an unresolved node", podC, resolved},
	} {
		to := " to " + dst.name
		v4, v6 := v4(dst.member), v6(dst.member)
		cases = append(cases,
			passes("IPv4 router alert"+to, podSends(v4.ipOptions(routerAlert...).udp(1, 2))),
			passes("IPv4 with all option space used"+to, podSends(v4.ipOptions(make([]byte, 40)...).udp(1, 2))),
			passes("IPv6 hop-by-hop options"+to, podSends(v6.extend(protoHopByHop).udp(1, 2))),
			passes("IPv6 hop-by-hop options before a fragment"+to, podSends(v6.extend(protoHopByHop).udp(1, 2).payload("12345678").fragment(0, true))),
			dst.redirected("IPv6 destination options"+to, v6.extend(protoDstOptions).udp(1, 2).payload("hi")),
			dst.redirected("IPv6 routing header"+to, v6.extend(protoRouting).udp(1, 2)),
			dst.redirected("IPv6 two extension headers"+to, v6.extend(protoDstOptions).extend(protoDstOptions).tcp(1, 2)),
			dst.redirected("IPv4 first fragment"+to, v4.udp(1, 2).payload("12345678").fragment(0, true)),
			dst.redirected("IPv4 middle fragment"+to, v4.udp(1, 2).payload("12345678").fragment(1024, true)),
			dst.redirected("IPv4 last fragment"+to, v4.udp(1, 2).payload("1").fragment(1024, false)),
			dst.redirected("IPv6 first fragment"+to, v6.udp(1, 2).payload("12345678").fragment(0, true)),
			dst.redirected("IPv6 last fragment"+to, v6.udp(1, 2).payload("1").fragment(1024, false)),
			dst.redirected("SCTP"+to, v4.raw(protoSCTP, make([]byte, 12))),
			dst.redirected("no payload at all"+to, v6.raw(59, nil)),
		)
	}
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	r.stage.setMTU(t, "blpoda", remoteMTU) // else the fragments may be of a packet whose others do not fit
	r.check(t, cases)
}

// The checksum update of a TTL that is one lower has to be right for every checksum, also where it wraps.
func TestFromPodChecksum(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	r.stage.do(func() {
		for ident := range 1 << 16 { // and with it every checksum
			p := fromPod().ipv4(podA.v4, podB.v4).udp(1, 2)
			p.ident = uint16(ident)
			got, err := r.run(podSends(p))
			if err != nil {
				t.Error(err)
				return
			}
			want := p.macs(nodeA.mac, nodeB.mac).ttl(p.hops - 1).bytes()
			if !bytes.Equal(want, got.out) {
				samePacket(t, want, got.out)
				return
			}
		}
	})
}

// A packet whose header checksum is wrong must stay wrong by the same amount.
func TestFromPodKeepsWrongChecksum(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	p := podSends(fromPod().ipv4(podA.v4, podB.v4).udp(1, 2))
	r.stage.do(func() {
		for sum := range 1 << 16 {
			p.in[ethLen+10], p.in[ethLen+11] = byte(sum>>8), byte(sum)
			before := checksum(p.in[ethLen : ethLen+ipv4Len])
			got, err := r.run(p)
			if err != nil {
				t.Error(err)
				return
			}
			if after := checksum(got.out[ethLen : ethLen+ipv4Len]); after != before {
				t.Errorf("the sum over the header was %04x and is %04x\n%s%s", before, after, layers(p.in), layers(got.out))
				return
			}
		}
	})
}

// A pod sends with its own addresses only.
func TestFromPodSources(t *testing.T) {
	allNodes, solicited := addr("ff02::1"), addr("ff02::1:ff00:2")
	linkLocal, gateway := addr("fe80::be:e1ff:fe00:a01"), addr("fe80::1")
	spoofed := uint32(bpfDropReasonDROP_SPOOFED_SOURCE)
	udp := func(src, dst netip.Addr) run { return podSends(fromPod().ip(src, dst).udp(1, 2).payload("hi")) }
	icmp := func(src, dst netip.Addr, kind uint8) run {
		return podSends(fromPod().ip(src, dst).ttl(255).icmp(kind, 0))
	}
	const solicitation, advertisement, routerSolicitation, listenerReport = 135, 136, 133, 143
	cases := []packetCase{
		drops("another pod here, IPv4", udp(podA2.v4, podB.v4), spoofed),
		drops("another pod here, IPv6", udp(podA2.v6, podB.v6), spoofed),
		drops("another pod here, to that pod", udp(podA2.v4, podA2.v4), spoofed),
		drops("a pod on another node, IPv4", udp(podB.v4, podA2.v4), spoofed),
		drops("a pod on another node, IPv6", udp(podB.v6, podA2.v6), spoofed),
		drops("a pod address that no pod has", udp(ghost.v4, podB.v4), spoofed),
		drops("its own node, IPv4", udp(nodeA.v4, podB.v4), spoofed),
		drops("its own node, IPv6", udp(nodeA.v6, podB.v6), spoofed),
		drops("the world, IPv4", udp(world.v4, podB.v4), spoofed),
		drops("the world, IPv6", udp(world.v6, podB.v6), spoofed),
		drops("loopback, IPv4", udp(addr("127.0.0.1"), nodeA.v4), spoofed),
		drops("loopback, IPv6", udp(addr("::1"), nodeA.v6), spoofed),
		drops("0.0.0.0 (a pod needs no DHCP)", udp(addr("0.0.0.0"), addr("255.255.255.255")), spoofed),
		drops("IPv4 link-local", udp(addr("169.254.7.7"), podB.v4), spoofed),
		drops("IPv4 multicast", udp(addr("224.0.0.1"), podB.v4), spoofed),
		passes("its own address to IPv4 multicast", udp(podA.v4, addr("224.0.0.251"))),
		passes("its own address to IPv4 broadcast", udp(podA.v4, addr("255.255.255.255"))),
		passes("its own address to IPv6 multicast", udp(podA.v6, addr("ff02::fb"))),
		passes("its own address to the gateway", udp(podA.v6, gateway)),

		passes("neighbour solicitation", icmp(linkLocal, solicited, solicitation)),
		passes("neighbour solicitation from its own address", icmp(podA.v6, solicited, solicitation)),
		passes("neighbour solicitation to the gateway", icmp(linkLocal, gateway, solicitation)),
		passes("neighbour advertisement", icmp(linkLocal, gateway, advertisement)),
		passes("duplicate address detection", icmp(addr("::"), solicited, solicitation)),
		passes("router solicitation", icmp(addr("::"), addr("ff02::2"), routerSolicitation)),
		passes("listener report", podSends(fromPod().ipv6(addr("::"), addr("ff02::16")).ttl(1).extend(protoHopByHop).icmp(listenerReport, 0))),
		passes("the last link-local address", icmp(addr("febf:ffff::1"), allNodes, solicitation)),
		drops("the first address after link-local", icmp(addr("fec0::1"), allNodes, solicitation), spoofed),
		drops("the last address before link-local", icmp(addr("fe7f:ffff::1"), allNodes, solicitation), spoofed),
		drops("link-local to a pod here", udp(linkLocal, podA2.v6), spoofed),
		drops("link-local to a pod on another node", udp(linkLocal, podB.v6), spoofed),
		drops("link-local to the world", udp(linkLocal, world.v6), spoofed),
		drops("unspecified to a pod here", udp(addr("::"), podA2.v6), spoofed),
		drops("unspecified to the world", udp(addr("::"), world.v6), spoofed),
		drops("multicast to the world", udp(addr("ff02::1"), world.v6), spoofed),
		drops("another pod to the link", udp(podA2.v6, addr("ff02::1")), spoofed),
	}
	for _, cfg := range []Config{{EBPFRouting: true, Masquerade: true}, {}} {
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}

// An IPv6 packet must not reach IPv4's entries of the tables by addresses like ::ffff:10.1.1.2, which have
// no place on a wire (RFC 4291, 2.5.5.2; RFC 4942, 2.2).
func TestFromPodMappedAddresses(t *testing.T) {
	mapped := func(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }
	malformed := uint32(bpfDropReasonDROP_MALFORMED)
	send := func(src, dst netip.Addr) run { return podSends(fromPod().ipv6(src, dst).udp(1, 2).payload("hi")) }
	newRig(t, Config{EBPFRouting: true, Masquerade: true}).check(t, []packetCase{
		drops("both", send(mapped(podA.v4), mapped(podB.v4)), malformed),
		drops("source", send(mapped(podA.v4), podB.v6), malformed),
		drops("destination on another node", send(podA.v6, mapped(podB.v4)), malformed),
		drops("destination here", send(podA.v6, mapped(podA2.v4)), malformed),
		drops("somebody else's", send(mapped(podA2.v4), mapped(podB.v4)), malformed),
	})
}

// The other pod's packets are its own: the source check looks at the device, not only at the address.
func TestFromPodChecksDevice(t *testing.T) {
	var cases []packetCase
	each(func(name string, family int, transport func(packet) packet) {
		p := transport(eth(podA2.mac, podA2.gateway).ip(podA2.addr(family), podA.addr(family)))
		here := podSends(p)
		there := here
		there.device = "blpoda2"
		cases = append(cases,
			drops(name+" on the wrong device", here, uint32(bpfDropReasonDROP_SPOOFED_SOURCE)),
			delivered(name+" on its own device", there, p, podA),
		)
	})
	newRig(t, Config{EBPFRouting: true, Masquerade: true}).check(t, cases)
}

func TestFromPodOtherProtocols(t *testing.T) {
	notIP := uint32(bpfDropReasonDROP_NOT_IP)
	arp := fromPod().ether(etherARP).payload("\x00\x01\x08\x00\x06\x04\x00\x01 and addresses, 28 bytes")
	cases := []packetCase{
		passes("ARP", podSends(arp)),
		passes("ARP, truncated", podSends(arp.payload("\x00"))),
		drops("VLAN", podSends(fromPod().ether(etherVLAN).payload("\x00\x64\x08\x00 anything")), notIP),
		drops("MPLS", podSends(fromPod().ether(etherMPLS).payload("label")), notIP),
		drops("IEEE 802.3 length", podSends(fromPod().ether(0x0026).payload("spanning tree")), notIP),
		drops("LLDP", podSends(fromPod().ether(0x88cc).payload("I am a switch")), notIP),
	}
	for _, cfg := range []Config{{EBPFRouting: true, Masquerade: true}, {}} {
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}

func cfgName(cfg Config) string {
	name := "routing=kernel"
	if cfg.EBPFRouting {
		name = "routing=ebpf"
	}
	return fmt.Sprintf("%s,masquerade=%t,stackservices=%t", name, cfg.Masquerade, cfg.StackServices)
}
