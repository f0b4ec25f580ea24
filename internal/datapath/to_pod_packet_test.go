package datapath

import "testing"

func stackDelivers(p packet) run {
	return run{program: bpfProgToPod, device: "blpoda", in: p.bytes()}
}

// The stack may deliver to a pod what is for that pod, and nothing else; in every configuration.
func TestToPod(t *testing.T) {
	wrongPod := uint32(bpfDropReasonDROP_INVALID_DESTINATION)
	var cases []packetCase
	each(func(name string, family int, transport func(packet) packet) {
		deliver := func(src, dst member) run {
			return stackDelivers(transport(toPod().ip(src.addr(family), dst.addr(family))))
		}
		other := deliver(nodeA, podA2)
		other.device = "blpoda2"
		cases = append(cases,
			passes(name+" from this node", deliver(nodeA, podA)),
			passes(name+" from another node", deliver(nodeB, podA)),
			passes(name+" from the world", deliver(world, podA)),
			passes(name+" from a pod on another node", deliver(podB, podA)),
			passes(name+" from a pod here", deliver(podA2, podA)),
			passes(name+" from the pod itself", deliver(podA, podA)),
			passes(name+" with no hop left", stackDelivers(transport(toPod().ip(nodeA.addr(family), podA.addr(family)).ttl(0)))),
			passes(name+" to the other pod on its device", other),
			drops(name+" to the other pod on the wrong device", deliver(nodeA, podA2), wrongPod),
			drops(name+" to a pod address that no pod has", deliver(nodeA, ghost), wrongPod),
			drops(name+" to a pod on another node", deliver(podA2, podB), wrongPod),
			drops(name+" to this node", deliver(podA2, nodeA), wrongPod),
			drops(name+" to the world", deliver(podA2, world), wrongPod),
		)
	})
	v4, v6 := toPod().ipv4(nodeA.v4, podA.v4), toPod().ipv6(nodeA.v6, podA.v6)
	cases = append(cases,
		passes("IPv4 options", stackDelivers(v4.ipOptions(0x94, 4, 0, 0).udp(1, 2))),
		passes("IPv6 hop-by-hop options", stackDelivers(v6.extend(protoHopByHop).udp(1, 2))),
		passes("IPv4 last fragment", stackDelivers(v4.udp(1, 2).payload("1").fragment(8, false))),
		passes("IPv6 last fragment", stackDelivers(v6.udp(1, 2).payload("1").fragment(8, false))),
		passes("ARP", stackDelivers(toPod().ether(etherARP).payload("who has"))),
		passes("VLAN", stackDelivers(toPod().ether(etherVLAN).payload("\x00\x64\x08\x00E"))),
		passes("neighbour solicitation", stackDelivers(toPod().ipv6(addr("fe80::1"), addr("ff02::1:ff00:2")).ttl(255).icmp(135, 0))),
		passes("neighbour advertisement", stackDelivers(toPod().ipv6(addr("fe80::1"), addr("fe80::5")).ttl(255).icmp(136, 0))),
		drops("IPv4 multicast", stackDelivers(toPod().ipv4(nodeA.v4, addr("224.0.0.251")).udp(5353, 5353)), wrongPod),
		drops("IPv4 broadcast", stackDelivers(toPod().ipv4(nodeA.v4, addr("255.255.255.255")).udp(68, 67)), wrongPod),
	)
	for _, cfg := range everyConfig() {
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}
