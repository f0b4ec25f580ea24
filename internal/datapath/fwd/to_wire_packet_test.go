package fwd_test

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

func marked(in harness.Run, mark uint32) harness.Run {
	in.Mark = mark
	return in
}

func TestToWireMasqueraded(t *testing.T) {
	noMasqueradeAddress := uint32(bpf.DropReasonDROP_NO_MASQUERADE_ADDRESS)
	unknown := uint32(bpf.DropReasonDROP_FRAGMENT_WITHOUT_FIRST)
	for _, routing := range []bool{true, false} {
		cfg := config.Datapath{EBPFRouting: routing, Masquerade: true}
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			send := func(src, dst fixtures.Member) harness.Run {
				return harness.StackSends(transport(fixtures.ToWire().Ip(src.Addr(family), dst.Addr(family))))
			}
			cases = append(cases,
				harness.Drops(name+" from a pod to an external host", send(fixtures.PodA, fixtures.External), noMasqueradeAddress),
				harness.Drops(name+" from a pod that is gone to an external host", send(fixtures.NoPod, fixtures.External), noMasqueradeAddress),
				harness.Drops(name+" from a pod to an external host, no hop left", harness.StackSends(transport(fixtures.ToWire().Ip(fixtures.PodA.Addr(family), fixtures.External.Addr(family)).Ttl(0))), noMasqueradeAddress),
				harness.Drops(name+" from a pod to an external host with a foreign mark", marked(send(fixtures.PodA, fixtures.External), ^uint32(0)), noMasqueradeAddress),
				harness.Passes(name+" from a pod to an external host, masqueraded", send(fixtures.NodeA, fixtures.External)),
				harness.Passes(name+" from a pod to a pod on another node", send(fixtures.PodA, fixtures.PodB)),
				harness.Passes(name+" from a pod to a pod behind a router", send(fixtures.PodA, fixtures.PodFar)),
				harness.Passes(name+" from a pod to another node", send(fixtures.PodA, fixtures.NodeB)),
				harness.Passes(name+" from this node to a pod", send(fixtures.NodeA, fixtures.PodB)),
				harness.Passes(name+" between others", send(fixtures.PodB, fixtures.External)),
				harness.Passes(name+" transit", send(fixtures.External, fixtures.External)),
			)
		})
		v4, v6 := fixtures.ToWire().Ipv4(fixtures.PodA.V4, fixtures.External.V4), fixtures.ToWire().Ipv6(fixtures.PodA.V6, fixtures.External.V6)
		cases = append(cases,
			harness.Drops("IPv4 options", harness.StackSends(v4.IpOptions(0x94, 4, 0, 0).Udp(1, 2)), noMasqueradeAddress),
			harness.Drops("IPv6 hop-by-hop", harness.StackSends(v6.Extend(fixtures.ProtoHopByHop).Udp(1, 2)), noMasqueradeAddress),
			harness.Drops("IPv4 last fragment", harness.StackSends(v4.Udp(1, 2).Payload("1").Fragment(8, false)), unknown),
			harness.Drops("IPv6 last fragment", harness.StackSends(v6.Udp(1, 2).Payload("1").Fragment(8, false)), unknown),
			harness.Passes("IPv6 to multicast", harness.StackSends(fixtures.ToWire().Ipv6(fixtures.PodA.V6, fixtures.Addr("ff02::1")).Icmp(136, 0))),
			harness.Passes("IPv6 to link-local", harness.StackSends(fixtures.ToWire().Ipv6(fixtures.PodA.V6, fixtures.Addr("fe80::2")).Icmp(136, 0))),
			harness.Passes("IPv6 to multicast of an external host", harness.StackSends(fixtures.ToWire().Ipv6(fixtures.PodA.V6, fixtures.Addr("ff0e::1")).Udp(1, 2))),
			harness.Drops("IPv6 next to link-local", harness.StackSends(fixtures.ToWire().Ipv6(fixtures.PodA.V6, fixtures.Addr("fec0::2")).Udp(1, 2)), noMasqueradeAddress),
			harness.Passes("IPv6 from link-local", harness.StackSends(fixtures.ToWire().Ipv6(fixtures.Addr("fe80::1"), fixtures.Addr("ff02::2")).Icmp(133, 0))),
			harness.Passes("ARP", harness.StackSends(fixtures.ToWire().Ether(fixtures.EtherARP).Payload("who has"))),
			harness.Passes("VLAN", harness.StackSends(fixtures.ToWire().Ether(fixtures.EtherVLAN).Payload("\x00\x64\x08\x00E"))),
		)
		for dst, onLink := range map[string]bool{
			"169.254.0.0": true, "169.254.255.255": true, "169.253.255.255": false, "169.255.0.0": false,
			"224.0.0.0": true, "239.255.255.255": true, "223.255.255.255": false, "240.0.0.0": false,
			"255.255.255.255": true, "255.255.255.254": false,
		} {
			in := harness.StackSends(fixtures.ToWire().Ipv4(fixtures.PodA.V4, fixtures.Addr(dst)).Udp(1, 2))
			if onLink {
				cases = append(cases, harness.Passes("IPv4 to "+dst, in))
			} else {
				cases = append(cases, harness.Drops("IPv4 to "+dst, in, noMasqueradeAddress))
			}
		}
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}

// Without masquerading a pod's address is good everywhere, and to_wire looks at nothing.
func TestToWireWithoutMasquerading(t *testing.T) {
	for _, routing := range []bool{true, false} {
		cfg := config.Datapath{EBPFRouting: routing}
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			cases = append(cases,
				harness.Passes(name+" from a pod to an external host", harness.StackSends(transport(fixtures.ToWire().Ip(fixtures.PodA.Addr(family), fixtures.External.Addr(family))))),
				harness.Passes(name+" from a pod to a pod on another node", harness.StackSends(transport(fixtures.ToWire().Ip(fixtures.PodA.Addr(family), fixtures.PodB.Addr(family))))),
			)
		})
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}
