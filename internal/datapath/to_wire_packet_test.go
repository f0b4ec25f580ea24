package datapath

import "testing"

func stackSends(p packet) run {
	return run{program: bpfProgToWire, device: "eth0", in: p.bytes()}
}

func marked(in run, mark uint32) run {
	in.mark = mark
	return in
}

func TestToWireMasqueraded(t *testing.T) {
	unmasqueraded := uint32(bpfDropReasonDROP_NO_MASQUERADE_ADDRESS)
	unknown := uint32(bpfDropReasonDROP_FRAGMENT_WITHOUT_FIRST)
	for _, routing := range []bool{true, false} {
		cfg := Config{EBPFRouting: routing, Masquerade: true}
		var cases []packetCase
		each(func(name string, family int, transport func(packet) packet) {
			send := func(src, dst member) run {
				return stackSends(transport(toWire().ip(src.addr(family), dst.addr(family))))
			}
			cases = append(cases,
				drops(name+" from a pod to the world", send(podA, world), unmasqueraded),
				drops(name+" from a pod that is gone to the world", send(ghost, world), unmasqueraded),
				drops(name+" from a pod to the world, no hop left", stackSends(transport(toWire().ip(podA.addr(family), world.addr(family)).ttl(0))), unmasqueraded),
				drops(name+" from a pod to the world with somebody else's mark", marked(send(podA, world), ^uint32(0)), unmasqueraded),
				passes(name+" from a pod to the world, masqueraded", send(nodeA, world)),
				passes(name+" from a pod to a pod on another node", send(podA, podB)),
				passes(name+" from a pod to a pod behind a router", send(podA, podFar)),
				passes(name+" from a pod to another node", send(podA, nodeB)),
				passes(name+" from this node to a pod", send(nodeA, podB)),
				passes(name+" between others", send(podB, world)),
				passes(name+" transit", send(world, world)),
			)
		})
		v4, v6 := toWire().ipv4(podA.v4, world.v4), toWire().ipv6(podA.v6, world.v6)
		cases = append(cases,
			drops("IPv4 options", stackSends(v4.ipOptions(0x94, 4, 0, 0).udp(1, 2)), unmasqueraded),
			drops("IPv6 hop-by-hop", stackSends(v6.extend(protoHopByHop).udp(1, 2)), unmasqueraded),
			drops("IPv4 last fragment", stackSends(v4.udp(1, 2).payload("1").fragment(8, false)), unknown),
			drops("IPv6 last fragment", stackSends(v6.udp(1, 2).payload("1").fragment(8, false)), unknown),
			passes("IPv6 to multicast", stackSends(toWire().ipv6(podA.v6, addr("ff02::1")).icmp(136, 0))),
			passes("IPv6 to link-local", stackSends(toWire().ipv6(podA.v6, addr("fe80::2")).icmp(136, 0))),
			passes("IPv6 to multicast of the world", stackSends(toWire().ipv6(podA.v6, addr("ff0e::1")).udp(1, 2))),
			drops("IPv6 next to link-local", stackSends(toWire().ipv6(podA.v6, addr("fec0::2")).udp(1, 2)), unmasqueraded),
			passes("IPv6 from link-local", stackSends(toWire().ipv6(addr("fe80::1"), addr("ff02::2")).icmp(133, 0))),
			passes("ARP", stackSends(toWire().ether(etherARP).payload("who has"))),
			passes("VLAN", stackSends(toWire().ether(etherVLAN).payload("\x00\x64\x08\x00E"))),
		)
		for dst, onLink := range map[string]bool{
			"169.254.0.0": true, "169.254.255.255": true, "169.253.255.255": false, "169.255.0.0": false,
			"224.0.0.0": true, "239.255.255.255": true, "223.255.255.255": false, "240.0.0.0": false,
			"255.255.255.255": true, "255.255.255.254": false,
		} {
			in := stackSends(toWire().ipv4(podA.v4, addr(dst)).udp(1, 2))
			if onLink {
				cases = append(cases, passes("IPv4 to "+dst, in))
			} else {
				cases = append(cases, drops("IPv4 to "+dst, in, unmasqueraded))
			}
		}
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}

// Without masquerading a pod's address is good everywhere, and to_wire looks at nothing.
func TestToWireWithoutMasquerading(t *testing.T) {
	for _, routing := range []bool{true, false} {
		cfg := Config{EBPFRouting: routing}
		var cases []packetCase
		each(func(name string, family int, transport func(packet) packet) {
			cases = append(cases,
				passes(name+" from a pod to the world", stackSends(transport(toWire().ip(podA.addr(family), world.addr(family))))),
				passes(name+" from a pod to a pod on another node", stackSends(transport(toWire().ip(podA.addr(family), podB.addr(family))))),
			)
		})
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}
