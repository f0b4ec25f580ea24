package fwd_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// resolved is the same by the kernel's neighbour table, which writes the link-layer header after the program.
func resolved(name string, p fixtures.Packet) harness.PacketCase {
	return harness.PacketCase{Name: name, Run: harness.PodSends(p), Verdict: harness.VerdictRedirect, Out: p.Ttl(p.Hops - 1).Bytes()}
}

func TestFromPodRoutes(t *testing.T) {
	var cases []harness.PacketCase
	harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
		to := func(dst fixtures.Member) fixtures.Packet {
			return transport(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), dst.Addr(family)))
		}
		cases = append(cases,
			harness.Delivered(name+" to a pod here", harness.PodSends(to(fixtures.PodA2)), to(fixtures.PodA2), fixtures.PodA2),
			harness.Passes(name+" to the pod itself", harness.PodSends(to(fixtures.PodA))),
			harness.Passes(name+" to a pod address that no pod has", harness.PodSends(to(fixtures.NoPod))),
			harness.Wired(name+" to a pod on a resolved node", to(fixtures.PodB)),
			resolved(name+" to a pod on an unresolved node", to(fixtures.PodC)),
			harness.Wired(name+" to another node", to(fixtures.NodeB)),
			harness.Passes(name+" to a pod behind a router", harness.PodSends(to(fixtures.PodFar))),
			harness.Passes(name+" to its own node", harness.PodSends(to(fixtures.NodeA))),
			harness.Passes(name+" to an external host", harness.PodSends(to(fixtures.External))),
		)
		for _, dst := range []struct {
			name string
			fixtures.Member
		}{{"a pod here", fixtures.PodA2}, {"a pod on another node", fixtures.PodB}, {"a pod on an unresolved node", fixtures.PodC}} {
			cases = append(cases,
				harness.Passes(fmt.Sprintf("%s to %s, its last hop", name, dst.name), harness.PodSends(to(dst.Member).Ttl(1))),
				harness.Passes(fmt.Sprintf("%s to %s, no hop left", name, dst.name), harness.PodSends(to(dst.Member).Ttl(0))),
			)
		}
		cases = append(cases,
			harness.Delivered(name+" to a pod here, two hops left", harness.PodSends(to(fixtures.PodA2)), to(fixtures.PodA2).Ttl(2), fixtures.PodA2),
			harness.Wired(name+" to a pod on another node, two hops left", to(fixtures.PodB).Ttl(2)),
			harness.Wired(name+" to a pod on another node, all hops left", to(fixtures.PodB).Ttl(255)),
		)
	})
	harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true}).Check(t, cases)
}

func TestFromPodWithoutLease(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	if err := r.D.Lease.Revoke(); err != nil {
		t.Fatal(err)
	}
	var cases []harness.PacketCase
	harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
		p := transport(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), fixtures.PodB.Addr(family)))
		cases = append(cases, resolved(name, p))
	})
	r.Check(t, cases)
}

// Masquerading does not concern packets that leave a pod.
func TestFromPodWithoutMasquerading(t *testing.T) {
	var cases []harness.PacketCase
	harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
		p := fixtures.FromPod()
		cases = append(cases,
			harness.Delivered(name+" to a pod here", harness.PodSends(transport(p.Ip(fixtures.PodA.Addr(family), fixtures.PodA2.Addr(family)))), transport(p.Ip(fixtures.PodA.Addr(family), fixtures.PodA2.Addr(family))), fixtures.PodA2),
			harness.Wired(name+" to a pod on another node", transport(p.Ip(fixtures.PodA.Addr(family), fixtures.PodB.Addr(family)))),
			harness.Passes(name+" to an external host", harness.PodSends(transport(p.Ip(fixtures.PodA.Addr(family), fixtures.External.Addr(family))))),
		)
	})
	harness.New(t, config.Datapath{EBPFRouting: true}).Check(t, cases)
}

// With kernel routing, what a pod may send goes to the stack, and the rest is dropped all the same.
func TestFromPodKernelRouting(t *testing.T) {
	var cases []harness.PacketCase
	harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
		for _, dst := range []fixtures.Member{fixtures.PodA, fixtures.PodA2, fixtures.NoPod, fixtures.PodB, fixtures.PodC, fixtures.NodeA, fixtures.NodeB, fixtures.External} {
			p := transport(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), dst.Addr(family)))
			cases = append(cases, harness.Passes(fmt.Sprintf("%s to %s", name, dst.Addr(family)), harness.PodSends(p)))
		}
		p := transport(fixtures.FromPod().Ip(fixtures.PodA2.Addr(family), fixtures.PodB.Addr(family)))
		cases = append(cases, harness.Drops(name+" spoofed", harness.PodSends(p), uint32(bpf.DropReasonDROP_SPOOFED_SOURCE)))
	})
	harness.New(t, config.Datapath{Masquerade: true}).Check(t, cases)
}

// Only the stack interprets IPv4 options and hop-by-hop headers. Other extension headers and fragments are
// none of a router's business and take the fast path.
func TestFromPodExceptions(t *testing.T) {
	v4 := func(dst fixtures.Member) fixtures.Packet { return fixtures.FromPod().Ipv4(fixtures.PodA.V4, dst.V4) }
	v6 := func(dst fixtures.Member) fixtures.Packet { return fixtures.FromPod().Ipv6(fixtures.PodA.V6, dst.V6) }
	routerAlert := []byte{0x94, 4, 0, 0}
	var cases []harness.PacketCase
	for _, dst := range []struct {
		name string
		fixtures.Member
		redirected func(name string, p fixtures.Packet) harness.PacketCase
	}{
		{"a pod here", fixtures.PodA2, func(name string, p fixtures.Packet) harness.PacketCase {
			return harness.Delivered(name, harness.PodSends(p), p, fixtures.PodA2)
		}},
		{"a pod on another node", fixtures.PodB, harness.Wired},
		{"a pod on an unresolved node", fixtures.PodC, resolved},
	} {
		to := " to " + dst.name
		v4, v6 := v4(dst.Member), v6(dst.Member)
		cases = append(cases,
			harness.Passes("IPv4 router alert"+to, harness.PodSends(v4.IpOptions(routerAlert...).Udp(1, 2))),
			harness.Passes("IPv4 with all option space used"+to, harness.PodSends(v4.IpOptions(make([]byte, 40)...).Udp(1, 2))),
			harness.Passes("IPv6 hop-by-hop options"+to, harness.PodSends(v6.Extend(fixtures.ProtoHopByHop).Udp(1, 2))),
			harness.Passes("IPv6 hop-by-hop options before a fragment"+to, harness.PodSends(v6.Extend(fixtures.ProtoHopByHop).Udp(1, 2).Payload("12345678").Fragment(0, true))),
			dst.redirected("IPv6 destination options"+to, v6.Extend(fixtures.ProtoDstOptions).Udp(1, 2).Payload("hi")),
			dst.redirected("IPv6 routing header"+to, v6.Extend(fixtures.ProtoRouting).Udp(1, 2)),
			dst.redirected("IPv6 two extension headers"+to, v6.Extend(fixtures.ProtoDstOptions).Extend(fixtures.ProtoDstOptions).Tcp(1, 2)),
			dst.redirected("IPv4 first fragment"+to, v4.Udp(1, 2).Payload("12345678").Fragment(0, true)),
			dst.redirected("IPv4 middle fragment"+to, v4.Udp(1, 2).Payload("12345678").Fragment(1024, true)),
			dst.redirected("IPv4 last fragment"+to, v4.Udp(1, 2).Payload("1").Fragment(1024, false)),
			dst.redirected("IPv6 first fragment"+to, v6.Udp(1, 2).Payload("12345678").Fragment(0, true)),
			dst.redirected("IPv6 last fragment"+to, v6.Udp(1, 2).Payload("1").Fragment(1024, false)),
			dst.redirected("SCTP"+to, v4.Raw(fixtures.ProtoSCTP, make([]byte, 12))),
			dst.redirected("no payload at all"+to, v6.Raw(59, nil)),
		)
	}
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	setMTU(r.Netns, t, "blpoda", fixtures.RemoteMTU) // else the fragments may be of a packet whose others do not fit
	r.Check(t, cases)
}

// The checksum update of a TTL that is one lower has to be right for every checksum, also where it wraps.
func TestFromPodChecksum(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	r.Netns.Do(func() {
		for ident := range 1 << 16 { // and with it every checksum
			p := fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Udp(1, 2)
			p.Ident = uint16(ident)
			got, err := r.Run(harness.PodSends(p))
			if err != nil {
				t.Error(err)
				return
			}
			want := p.Macs(fixtures.NodeA.Mac, fixtures.NodeB.Mac).Ttl(p.Hops - 1).Bytes()
			if !bytes.Equal(want, got.Out) {
				fixtures.SamePacket(t, want, got.Out)
				return
			}
		}
	})
}

// A packet whose header checksum is wrong must stay wrong by the same amount.
func TestFromPodKeepsWrongChecksum(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	p := harness.PodSends(fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Udp(1, 2))
	r.Netns.Do(func() {
		for sum := range 1 << 16 {
			p.In[fixtures.EthLen+10], p.In[fixtures.EthLen+11] = byte(sum>>8), byte(sum)
			before := fixtures.Checksum(p.In[fixtures.EthLen : fixtures.EthLen+fixtures.Ipv4Len])
			got, err := r.Run(p)
			if err != nil {
				t.Error(err)
				return
			}
			if after := fixtures.Checksum(got.Out[fixtures.EthLen : fixtures.EthLen+fixtures.Ipv4Len]); after != before {
				t.Errorf("the sum over the header was %04x and is %04x\n%s%s", before, after, fixtures.Layers(p.In), fixtures.Layers(got.Out))
				return
			}
		}
	})
}

// A pod sends with its own addresses only.
func TestFromPodSources(t *testing.T) {
	allNodes, solicited := fixtures.Addr("ff02::1"), fixtures.Addr("ff02::1:ff00:2")
	linkLocal, gateway := fixtures.Addr("fe80::be:e1ff:fe00:a01"), fixtures.Addr("fe80::1")
	spoofed := uint32(bpf.DropReasonDROP_SPOOFED_SOURCE)
	udp := func(src, dst netip.Addr) harness.Run {
		return harness.PodSends(fixtures.FromPod().Ip(src, dst).Udp(1, 2).Payload("hi"))
	}
	icmp := func(src, dst netip.Addr, kind uint8) harness.Run {
		return harness.PodSends(fixtures.FromPod().Ip(src, dst).Ttl(255).Icmp(kind, 0))
	}
	const solicitation, advertisement, routerSolicitation, listenerReport = 135, 136, 133, 143
	cases := []harness.PacketCase{
		harness.Drops("another pod here, IPv4", udp(fixtures.PodA2.V4, fixtures.PodB.V4), spoofed),
		harness.Drops("another pod here, IPv6", udp(fixtures.PodA2.V6, fixtures.PodB.V6), spoofed),
		harness.Drops("another pod here, to that pod", udp(fixtures.PodA2.V4, fixtures.PodA2.V4), spoofed),
		harness.Drops("a pod on another node, IPv4", udp(fixtures.PodB.V4, fixtures.PodA2.V4), spoofed),
		harness.Drops("a pod on another node, IPv6", udp(fixtures.PodB.V6, fixtures.PodA2.V6), spoofed),
		harness.Drops("a pod address that no pod has", udp(fixtures.NoPod.V4, fixtures.PodB.V4), spoofed),
		harness.Drops("its own node, IPv4", udp(fixtures.NodeA.V4, fixtures.PodB.V4), spoofed),
		harness.Drops("its own node, IPv6", udp(fixtures.NodeA.V6, fixtures.PodB.V6), spoofed),
		harness.Drops("an external host, IPv4", udp(fixtures.External.V4, fixtures.PodB.V4), spoofed),
		harness.Drops("an external host, IPv6", udp(fixtures.External.V6, fixtures.PodB.V6), spoofed),
		harness.Drops("loopback, IPv4", udp(fixtures.Addr("127.0.0.1"), fixtures.NodeA.V4), spoofed),
		harness.Drops("loopback, IPv6", udp(fixtures.Addr("::1"), fixtures.NodeA.V6), spoofed),
		harness.Drops("0.0.0.0 (a pod needs no DHCP)", udp(fixtures.Addr("0.0.0.0"), fixtures.Addr("255.255.255.255")), spoofed),
		harness.Drops("IPv4 link-local", udp(fixtures.Addr("169.254.7.7"), fixtures.PodB.V4), spoofed),
		harness.Drops("IPv4 multicast", udp(fixtures.Addr("224.0.0.1"), fixtures.PodB.V4), spoofed),
		harness.Passes("its own address to IPv4 multicast", udp(fixtures.PodA.V4, fixtures.Addr("224.0.0.251"))),
		harness.Passes("its own address to IPv4 broadcast", udp(fixtures.PodA.V4, fixtures.Addr("255.255.255.255"))),
		harness.Passes("its own address to IPv6 multicast", udp(fixtures.PodA.V6, fixtures.Addr("ff02::fb"))),
		harness.Passes("its own address to the gateway", udp(fixtures.PodA.V6, gateway)),

		harness.Passes("neighbour solicitation", icmp(linkLocal, solicited, solicitation)),
		harness.Passes("neighbour solicitation from its own address", icmp(fixtures.PodA.V6, solicited, solicitation)),
		harness.Passes("neighbour solicitation to the gateway", icmp(linkLocal, gateway, solicitation)),
		harness.Passes("neighbour advertisement", icmp(linkLocal, gateway, advertisement)),
		harness.Passes("duplicate address detection", icmp(fixtures.Addr("::"), solicited, solicitation)),
		harness.Passes("router solicitation", icmp(fixtures.Addr("::"), fixtures.Addr("ff02::2"), routerSolicitation)),
		harness.Passes("listener report", harness.PodSends(fixtures.FromPod().Ipv6(fixtures.Addr("::"), fixtures.Addr("ff02::16")).Ttl(1).Extend(fixtures.ProtoHopByHop).Icmp(listenerReport, 0))),
		harness.Passes("the last link-local address", icmp(fixtures.Addr("febf:ffff::1"), allNodes, solicitation)),
		harness.Drops("the first address after link-local", icmp(fixtures.Addr("fec0::1"), allNodes, solicitation), spoofed),
		harness.Drops("the last address before link-local", icmp(fixtures.Addr("fe7f:ffff::1"), allNodes, solicitation), spoofed),
		harness.Drops("link-local to a pod here", udp(linkLocal, fixtures.PodA2.V6), spoofed),
		harness.Drops("link-local to a pod on another node", udp(linkLocal, fixtures.PodB.V6), spoofed),
		harness.Drops("link-local to an external host", udp(linkLocal, fixtures.External.V6), spoofed),
		harness.Drops("unspecified to a pod here", udp(fixtures.Addr("::"), fixtures.PodA2.V6), spoofed),
		harness.Drops("unspecified to an external host", udp(fixtures.Addr("::"), fixtures.External.V6), spoofed),
		harness.Drops("multicast to an external host", udp(fixtures.Addr("ff02::1"), fixtures.External.V6), spoofed),
		harness.Drops("another pod to the link", udp(fixtures.PodA2.V6, fixtures.Addr("ff02::1")), spoofed),
	}
	for _, cfg := range []config.Datapath{{EBPFRouting: true, Masquerade: true}, {}} {
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}

// An IPv6 packet must not reach IPv4's entries of the tables by addresses like ::ffff:10.1.1.2, which have
// no place on a wire (RFC 4291, 2.5.5.2; RFC 4942, 2.2).
func TestFromPodMappedAddresses(t *testing.T) {
	mapped := func(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }
	malformed := uint32(bpf.DropReasonDROP_MALFORMED)
	send := func(src, dst netip.Addr) harness.Run {
		return harness.PodSends(fixtures.FromPod().Ipv6(src, dst).Udp(1, 2).Payload("hi"))
	}
	harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true}).Check(t, []harness.PacketCase{
		harness.Drops("both", send(mapped(fixtures.PodA.V4), mapped(fixtures.PodB.V4)), malformed),
		harness.Drops("source", send(mapped(fixtures.PodA.V4), fixtures.PodB.V6), malformed),
		harness.Drops("destination on another node", send(fixtures.PodA.V6, mapped(fixtures.PodB.V4)), malformed),
		harness.Drops("destination here", send(fixtures.PodA.V6, mapped(fixtures.PodA2.V4)), malformed),
		harness.Drops("another pod's", send(mapped(fixtures.PodA2.V4), mapped(fixtures.PodB.V4)), malformed),
	})
}

// The other pod's packets are its own: the source check looks at the device, not only at the address.
func TestFromPodChecksDevice(t *testing.T) {
	var cases []harness.PacketCase
	harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
		p := transport(fixtures.Eth(fixtures.PodA2.Mac, fixtures.PodA2.Gateway).Ip(fixtures.PodA2.Addr(family), fixtures.PodA.Addr(family)))
		here := harness.PodSends(p)
		there := here
		there.Device = "blpoda2"
		cases = append(cases,
			harness.Drops(name+" on the wrong device", here, uint32(bpf.DropReasonDROP_SPOOFED_SOURCE)),
			harness.Delivered(name+" on its own device", there, p, fixtures.PodA),
		)
	})
	harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true}).Check(t, cases)
}

func TestFromPodOtherProtocols(t *testing.T) {
	notIP := uint32(bpf.DropReasonDROP_NOT_IP)
	arp := fixtures.FromPod().Ether(fixtures.EtherARP).Payload("\x00\x01\x08\x00\x06\x04\x00\x01 and addresses, 28 bytes")
	cases := []harness.PacketCase{
		harness.Passes("ARP", harness.PodSends(arp)),
		harness.Passes("ARP, truncated", harness.PodSends(arp.Payload("\x00"))),
		harness.Drops("VLAN", harness.PodSends(fixtures.FromPod().Ether(fixtures.EtherVLAN).Payload("\x00\x64\x08\x00 anything")), notIP),
		harness.Drops("MPLS", harness.PodSends(fixtures.FromPod().Ether(fixtures.EtherMPLS).Payload("label")), notIP),
		harness.Drops("IEEE 802.3 length", harness.PodSends(fixtures.FromPod().Ether(0x0026).Payload("spanning tree")), notIP),
		harness.Drops("LLDP", harness.PodSends(fixtures.FromPod().Ether(0x88cc).Payload("I am a switch")), notIP),
	}
	for _, cfg := range []config.Datapath{{EBPFRouting: true, Masquerade: true}, {}} {
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}
