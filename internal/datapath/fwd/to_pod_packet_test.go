package fwd_test

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// The stack may deliver to a pod what is for that pod, and nothing else; in every configuration.
func TestToPod(t *testing.T) {
	wrongPod := uint32(bpf.DropReasonDROP_INVALID_DESTINATION)
	var cases []harness.PacketCase
	harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
		deliver := func(src, dst fixtures.Member) harness.Run {
			return harness.StackDelivers(transport(fixtures.ToPod().Ip(src.Addr(family), dst.Addr(family))))
		}
		other := deliver(fixtures.NodeA, fixtures.PodA2)
		other.Device = "blpoda2"
		cases = append(cases,
			harness.Passes(name+" from this node", deliver(fixtures.NodeA, fixtures.PodA)),
			harness.Passes(name+" from another node", deliver(fixtures.NodeB, fixtures.PodA)),
			harness.Passes(name+" from an external host", deliver(fixtures.External, fixtures.PodA)),
			harness.Passes(name+" from a pod on another node", deliver(fixtures.PodB, fixtures.PodA)),
			harness.Passes(name+" from a pod here", deliver(fixtures.PodA2, fixtures.PodA)),
			harness.Passes(name+" from the pod itself", deliver(fixtures.PodA, fixtures.PodA)),
			harness.Passes(name+" with no hop left", harness.StackDelivers(transport(fixtures.ToPod().Ip(fixtures.NodeA.Addr(family), fixtures.PodA.Addr(family)).Ttl(0)))),
			harness.Passes(name+" to the other pod on its device", other),
			harness.Drops(name+" to the other pod on the wrong device", deliver(fixtures.NodeA, fixtures.PodA2), wrongPod),
			harness.Drops(name+" to a pod address that no pod has", deliver(fixtures.NodeA, fixtures.NoPod), wrongPod),
			harness.Drops(name+" to a pod on another node", deliver(fixtures.PodA2, fixtures.PodB), wrongPod),
			harness.Drops(name+" to this node", deliver(fixtures.PodA2, fixtures.NodeA), wrongPod),
			harness.Drops(name+" to an external host", deliver(fixtures.PodA2, fixtures.External), wrongPod),
		)
	})
	v4, v6 := fixtures.ToPod().Ipv4(fixtures.NodeA.V4, fixtures.PodA.V4), fixtures.ToPod().Ipv6(fixtures.NodeA.V6, fixtures.PodA.V6)
	cases = append(cases,
		harness.Passes("IPv4 options", harness.StackDelivers(v4.IpOptions(0x94, 4, 0, 0).Udp(1, 2))),
		harness.Passes("IPv6 hop-by-hop options", harness.StackDelivers(v6.Extend(fixtures.ProtoHopByHop).Udp(1, 2))),
		harness.Passes("IPv4 last fragment", harness.StackDelivers(v4.Udp(1, 2).Payload("1").Fragment(8, false))),
		harness.Passes("IPv6 last fragment", harness.StackDelivers(v6.Udp(1, 2).Payload("1").Fragment(8, false))),
		harness.Passes("ARP", harness.StackDelivers(fixtures.ToPod().Ether(fixtures.EtherARP).Payload("who has"))),
		harness.Passes("VLAN", harness.StackDelivers(fixtures.ToPod().Ether(fixtures.EtherVLAN).Payload("\x00\x64\x08\x00E"))),
		harness.Passes("neighbour solicitation", harness.StackDelivers(fixtures.ToPod().Ipv6(fixtures.Addr("fe80::1"), fixtures.Addr("ff02::1:ff00:2")).Ttl(255).Icmp(135, 0))),
		harness.Passes("neighbour advertisement", harness.StackDelivers(fixtures.ToPod().Ipv6(fixtures.Addr("fe80::1"), fixtures.Addr("fe80::5")).Ttl(255).Icmp(136, 0))),
		harness.Drops("IPv4 multicast", harness.StackDelivers(fixtures.ToPod().Ipv4(fixtures.NodeA.V4, fixtures.Addr("224.0.0.251")).Udp(5353, 5353)), wrongPod),
		harness.Drops("IPv4 broadcast", harness.StackDelivers(fixtures.ToPod().Ipv4(fixtures.NodeA.V4, fixtures.Addr("255.255.255.255")).Udp(68, 67)), wrongPod),
	)
	for _, cfg := range fixtures.EveryConfig() {
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) { harness.New(t, cfg).Check(t, cases) })
	}
}
