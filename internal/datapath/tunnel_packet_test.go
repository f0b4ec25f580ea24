package datapath

import (
	"fmt"
	"testing"
)

// tunnelled is a packet of podA that leaves through the VXLAN device. What is around it does not show here.
func tunnelled(name string, p packet) packetCase {
	return packetCase{name: name, run: podSends(p), verdict: verdictRedirect,
		out: p.macs(tunnelSender, tunnelMAC).ttl(p.hops - 1).bytes()}
}

func TestFromPodToTunnel(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := Config{EBPFRouting: true, Masquerade: masquerade}
		var cases []packetCase
		each(func(name string, family int, transport func(packet) packet) {
			to := func(dst member) packet {
				return transport(fromPod().ip(podA.addr(family), dst.addr(family)))
			}
			cases = append(cases,
				tunnelled(name+" to a pod", to(podT)),
				tunnelled(name+" to a pod over IPv6", to(podT6)),
				tunnelled(name+" to the node", to(nodeT)),
				tunnelled(name+" two hops left", to(podT).ttl(2)),
				passes(name+" its last hop", podSends(to(podT).ttl(1))),
				passes(name+" no hop left", podSends(to(podT).ttl(0))),
				tunnelled(name+" as large as the tunnel carries", to(podT).sized(remoteMTU)),
				passes(name+" larger than that", podSends(to(podT).sized(remoteMTU+1))),
				drops(name+" spoofed", podSends(transport(fromPod().ip(podA2.addr(family), podT.addr(family)))), uint32(bpfDropReasonDROP_SPOOFED_SOURCE)),
			)
		})
		cases = append(cases,
			passes("IPv4 options", podSends(fromPod().ipv4(podA.v4, podT.v4).ipOptions(0x94, 4, 0, 0).udp(1, 2))),
			passes("IPv6 hop-by-hop options", podSends(fromPod().ipv6(podA.v6, podT.v6).extend(protoHopByHop).udp(1, 2))),
		)
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}

// stackTunnels is a packet that the host's stack sends through the VXLAN device, which asks for no addresses.
func stackTunnels(p packet) run {
	return run{program: bpfProgToTunnel, device: "tunnel", in: p.bytes()}
}

func TestToTunnel(t *testing.T) {
	fromStack, fromPodBefore := eth(tunnelMAC, tunnelMAC), eth(tunnelSender, tunnelMAC)
	for _, cfg := range []Config{{EBPFRouting: true, Masquerade: true}, {}} {
		var cases []packetCase
		each(func(name string, family int, transport func(packet) packet) {
			for _, dst := range []member{podT, podT6} {
				p := transport(fromStack.ip(nodeA.addr(family), dst.addr(family)))
				for what, p := range map[string]packet{"": p, ", large": p.sized(remoteMTU), ", its last hop": p.ttl(1)} {
					c := passes(fmt.Sprintf("%s to %s%s", name, dst.v4, what), stackTunnels(p))
					c.out = p.macs(tunnelSender, tunnelMAC).bytes()
					cases = append(cases, c)
				}
			}
			cases = append(cases,
				passes(name+" to a node on the link", stackTunnels(transport(fromStack.ip(nodeA.addr(family), nodeB.addr(family))))),
				passes(name+" to a pod here", stackTunnels(transport(fromStack.ip(nodeA.addr(family), podA.addr(family))))),
				passes(name+" to the world", stackTunnels(transport(fromStack.ip(nodeA.addr(family), world.addr(family))))),
				passes(name+" addressed by from_pod", stackTunnels(transport(fromPodBefore.ip(podA.addr(family), podT.addr(family))))),
			)
		})
		cases = append(cases,
			passes("ARP", stackTunnels(fromStack.ether(etherARP).payload("who has"))),
			drops("malformed", stackTunnels(shortHeader(fromStack)), uint32(bpfDropReasonDROP_MALFORMED)),
		)
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}

// What has come through no tunnel has come from no node. The rest of from_tunnel needs real devices.
func TestFromTunnelWithoutTunnel(t *testing.T) {
	brings := func(p packet) run { return run{program: bpfProgFromTunnel, device: "tunnel", in: p.bytes()} }
	in := eth(tunnelSender, tunnelMAC)
	for _, cfg := range []Config{{EBPFRouting: true, Masquerade: true}, {}} {
		var cases []packetCase
		each(func(name string, family int, transport func(packet) packet) {
			for _, src := range []member{podT, nodeT, podB, world} {
				for _, dst := range []member{podA, nodeA, world} {
					p := transport(in.ip(src.addr(family), dst.addr(family)))
					cases = append(cases, drops(fmt.Sprintf("%s %s to %s", name, src.addr(family), dst.addr(family)), brings(p), uint32(bpfDropReasonDROP_UNKNOWN_TUNNEL_PEER)))
				}
			}
		})
		cases = append(cases,
			drops("ARP", brings(in.ether(etherARP).payload("who has")), uint32(bpfDropReasonDROP_NOT_IP)),
			drops("malformed", brings(shortHeader(in)), uint32(bpfDropReasonDROP_MALFORMED)),
		)
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}

// shortHeader is a packet whose IPv4 header says that it is shorter than any.
func shortHeader(p packet) packet {
	p = p.ipv4(podT.v4, podA.v4).udp(1, 2)
	p.ihl = 4
	return p
}
