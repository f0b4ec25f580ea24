package fwd_test

import (
	"fmt"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

func TestFromWireDelivers(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := config.Datapath{EBPFRouting: true, Masquerade: masquerade}
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			from := func(src, dst fixtures.Member) fixtures.Packet {
				return transport(fixtures.FromWire().Ip(src.Addr(family), dst.Addr(family)))
			}
			cases = append(cases,
				harness.Arrives(name+" from a pod on another node", from(fixtures.PodB, fixtures.PodA)),
				harness.Delivered(name+" to the other pod", harness.WireBrings(from(fixtures.PodB, fixtures.PodA2)), from(fixtures.PodB, fixtures.PodA2), fixtures.PodA2),
				harness.Arrives(name+" from another node", from(fixtures.NodeB, fixtures.PodA)),
				harness.Arrives(name+" from a pod behind a router", from(fixtures.PodFar, fixtures.PodA)),
				harness.Arrives(name+" with two hops left", from(fixtures.PodB, fixtures.PodA).Ttl(2)),
				harness.Passes(name+" with one hop left", harness.WireBrings(from(fixtures.PodB, fixtures.PodA).Ttl(1))),
				harness.Passes(name+" with no hop left", harness.WireBrings(from(fixtures.PodB, fixtures.PodA).Ttl(0))),
				harness.Passes(name+" to a pod address that no pod has", harness.WireBrings(from(fixtures.PodB, fixtures.NoPod))),
				harness.Passes(name+" to this node", harness.WireBrings(from(fixtures.PodB, fixtures.NodeA))),
				harness.Passes(name+" to a pod on another node", harness.WireBrings(from(fixtures.PodB, fixtures.PodC))),
				harness.Passes(name+" to an external host", harness.WireBrings(from(fixtures.PodB, fixtures.External))),
			)
			cases = append(cases, harness.Arrives(name+" from an external host", from(fixtures.External, fixtures.PodA)))
		})
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}

// A packet keeps the mark that an earlier program or the driver gave it.
func TestFromWireKeepsMark(t *testing.T) {
	c := harness.Arrives("marked", fixtures.FromWire().Ipv4(fixtures.PodB.V4, fixtures.PodA.V4).Udp(1, 2))
	c.Mark = 0x1234
	harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true}).Check(t, []harness.PacketCase{c})
}

func TestFromWireExceptions(t *testing.T) {
	v4, v6 := fixtures.FromWire().Ipv4(fixtures.PodB.V4, fixtures.PodA.V4), fixtures.FromWire().Ipv6(fixtures.PodB.V6, fixtures.PodA.V6)
	cases := []harness.PacketCase{
		harness.Passes("IPv4 options", harness.WireBrings(v4.IpOptions(0x94, 4, 0, 0).Udp(1, 2))),
		harness.Passes("IPv6 hop-by-hop options", harness.WireBrings(v6.Extend(fixtures.ProtoHopByHop).Udp(1, 2))),
		harness.Arrives("IPv6 destination options", v6.Extend(fixtures.ProtoDstOptions).Udp(1, 2)),
		harness.Arrives("IPv6 routing header", v6.Extend(fixtures.ProtoRouting).Udp(1, 2)),
		harness.Arrives("IPv4 first fragment", v4.Udp(1, 2).Payload("12345678").Fragment(0, true)),
		harness.Arrives("IPv4 last fragment", v4.Udp(1, 2).Payload("12345678").Fragment(8, false)),
		harness.Arrives("IPv6 first fragment", v6.Udp(1, 2).Payload("12345678").Fragment(0, true)),
		harness.Arrives("IPv6 last fragment", v6.Udp(1, 2).Payload("12345678").Fragment(8, false)),
		harness.Passes("ARP", harness.WireBrings(fixtures.FromWire().Ether(fixtures.EtherARP).Payload("who has"))),
		harness.Passes("VLAN", harness.WireBrings(fixtures.FromWire().Ether(fixtures.EtherVLAN).Payload("\x00\x64\x08\x00E"))),
		harness.Passes("MPLS", harness.WireBrings(fixtures.FromWire().Ether(fixtures.EtherMPLS).Payload("label"))),
		harness.Passes("neighbour solicitation", harness.WireBrings(fixtures.FromWire().Ipv6(fixtures.Addr("fe80::2"), fixtures.Addr("ff02::1:ff00:1")).Ttl(255).Icmp(135, 0))),
	}
	for name, dst := range map[string]fwd.MAC{"another host": fixtures.Router, "a pod": fixtures.PodA.Mac, "all": {255, 255, 255, 255, 255, 255}, "a group": {1, 0, 0x5e, 0, 0, 1}} {
		cases = append(cases,
			harness.Passes("IPv4 in a frame for "+name, harness.WireBrings(v4.Macs(fixtures.NodeB.Mac, dst).Udp(1, 2))),
			harness.Passes("IPv6 in a frame for "+name, harness.WireBrings(v6.Macs(fixtures.NodeB.Mac, dst).Udp(1, 2))),
		)
	}
	// The uplink's MTU has nothing to say about what has come through it, merged by GRO or not.
	big := v4.Tcp(1, 2).Sized(3000)
	merged := harness.Arrives("IPv4 TCP larger than the MTU", big)
	merged.GsoSize = 1448
	cases = append(cases, merged)
	harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true}).Check(t, cases)
}

// With kernel routing from_wire lets everything pass untouched, garbage included.
func TestFromWireKernelRouting(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := config.Datapath{Masquerade: masquerade}
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			for _, src := range []fixtures.Member{fixtures.PodB, fixtures.NodeB, fixtures.External} {
				for _, dst := range []fixtures.Member{fixtures.PodA, fixtures.NoPod, fixtures.NodeA} {
					p := transport(fixtures.FromWire().Ip(src.Addr(family), dst.Addr(family)))
					cases = append(cases, harness.Passes(fmt.Sprintf("%s %s to %s", name, src.Addr(family), dst.Addr(family)), harness.WireBrings(p)))
				}
			}
		})
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}
