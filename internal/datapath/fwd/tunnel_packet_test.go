package fwd_test

import (
	"fmt"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// tunnelled is a packet of PodA that leaves through the VXLAN device. What is around it does not show here.
func tunnelled(name string, p fixtures.Packet) harness.PacketCase {
	return harness.PacketCase{Name: name, Run: harness.PodSends(p), Verdict: harness.VerdictRedirect,
		Out: p.Macs(fixtures.TunnelSender, fixtures.TunnelMAC).Ttl(p.Hops - 1).Bytes()}
}

func TestFromPodToTunnel(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := config.Datapath{EBPFRouting: true, Masquerade: masquerade}
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			to := func(dst fixtures.Member) fixtures.Packet {
				return transport(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), dst.Addr(family)))
			}
			cases = append(cases,
				tunnelled(name+" to a pod", to(fixtures.PodT)),
				tunnelled(name+" to a pod over IPv6", to(fixtures.PodT6)),
				tunnelled(name+" to the node", to(fixtures.NodeT)),
				tunnelled(name+" two hops left", to(fixtures.PodT).Ttl(2)),
				harness.Passes(name+" its last hop", harness.PodSends(to(fixtures.PodT).Ttl(1))),
				harness.Passes(name+" no hop left", harness.PodSends(to(fixtures.PodT).Ttl(0))),
				tunnelled(name+" as large as the tunnel carries", to(fixtures.PodT).Sized(fixtures.RemoteMTU)),
				harness.Passes(name+" larger than that", harness.PodSends(to(fixtures.PodT).Sized(fixtures.RemoteMTU+1))),
				harness.Drops(name+" spoofed", harness.PodSends(transport(fixtures.FromPod().Ip(fixtures.PodA2.Addr(family), fixtures.PodT.Addr(family)))), uint32(bpf.DropReasonDROP_SPOOFED_SOURCE)),
			)
		})
		cases = append(cases,
			harness.Passes("IPv4 options", harness.PodSends(fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodT.V4).IpOptions(0x94, 4, 0, 0).Udp(1, 2))),
			harness.Passes("IPv6 hop-by-hop options", harness.PodSends(fixtures.FromPod().Ipv6(fixtures.PodA.V6, fixtures.PodT.V6).Extend(fixtures.ProtoHopByHop).Udp(1, 2))),
		)
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}

// stackTunnels is a packet that the host's stack sends through the VXLAN device, which resolves no addresses.
func stackTunnels(p fixtures.Packet) harness.Run {
	return harness.Run{Program: bpf.ProgToTunnel, Device: "tunnel", In: p.Bytes()}
}

func TestToTunnel(t *testing.T) {
	fromStack, fromPodBefore := fixtures.Eth(fixtures.TunnelMAC, fixtures.TunnelMAC), fixtures.Eth(fixtures.TunnelSender, fixtures.TunnelMAC)
	for _, cfg := range []config.Datapath{{EBPFRouting: true, Masquerade: true}, {}} {
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			for _, dst := range []fixtures.Member{fixtures.PodT, fixtures.PodT6} {
				p := transport(fromStack.Ip(fixtures.NodeA.Addr(family), dst.Addr(family)))
				for what, p := range map[string]fixtures.Packet{"": p, ", large": p.Sized(fixtures.RemoteMTU), ", its last hop": p.Ttl(1)} {
					c := harness.Passes(fmt.Sprintf("%s to %s%s", name, dst.V4, what), stackTunnels(p))
					c.Out = p.Macs(fixtures.TunnelSender, fixtures.TunnelMAC).Bytes()
					cases = append(cases, c)
				}
			}
			cases = append(cases,
				harness.Passes(name+" to a node on the link", stackTunnels(transport(fromStack.Ip(fixtures.NodeA.Addr(family), fixtures.NodeB.Addr(family))))),
				harness.Passes(name+" to a pod here", stackTunnels(transport(fromStack.Ip(fixtures.NodeA.Addr(family), fixtures.PodA.Addr(family))))),
				harness.Passes(name+" to an external host", stackTunnels(transport(fromStack.Ip(fixtures.NodeA.Addr(family), fixtures.External.Addr(family))))),
				harness.Passes(name+" addressed by from_pod", stackTunnels(transport(fromPodBefore.Ip(fixtures.PodA.Addr(family), fixtures.PodT.Addr(family))))),
			)
		})
		cases = append(cases,
			harness.Passes("ARP", stackTunnels(fromStack.Ether(fixtures.EtherARP).Payload("who has"))),
			harness.Drops("malformed", stackTunnels(shortHeader(fromStack)), uint32(bpf.DropReasonDROP_MALFORMED)),
		)
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}

// What has come through no tunnel has come from no node. The rest of from_tunnel needs real devices.
func TestFromTunnelWithoutTunnel(t *testing.T) {
	brings := func(p fixtures.Packet) harness.Run {
		return harness.Run{Program: bpf.ProgFromTunnel, Device: "tunnel", In: p.Bytes()}
	}
	in := fixtures.Eth(fixtures.TunnelSender, fixtures.TunnelMAC)
	for _, cfg := range []config.Datapath{{EBPFRouting: true, Masquerade: true}, {}} {
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			for _, src := range []fixtures.Member{fixtures.PodT, fixtures.NodeT, fixtures.PodB, fixtures.External} {
				for _, dst := range []fixtures.Member{fixtures.PodA, fixtures.NodeA, fixtures.External} {
					p := transport(in.Ip(src.Addr(family), dst.Addr(family)))
					cases = append(cases, harness.Drops(fmt.Sprintf("%s %s to %s", name, src.Addr(family), dst.Addr(family)), brings(p), uint32(bpf.DropReasonDROP_UNKNOWN_TUNNEL_PEER)))
				}
			}
		})
		cases = append(cases,
			harness.Drops("ARP", brings(in.Ether(fixtures.EtherARP).Payload("who has")), uint32(bpf.DropReasonDROP_NOT_IP)),
			harness.Drops("malformed", brings(shortHeader(in)), uint32(bpf.DropReasonDROP_MALFORMED)),
		)
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}

// shortHeader is a packet whose IPv4 header says that it is shorter than any.
func shortHeader(p fixtures.Packet) fixtures.Packet {
	p = p.Ipv4(fixtures.PodT.V4, fixtures.PodA.V4).Udp(1, 2)
	p.Ihl = 4
	return p
}
