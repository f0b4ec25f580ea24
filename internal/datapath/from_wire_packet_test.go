package datapath

import (
	"fmt"
	"testing"
)

func wireBrings(p packet) run {
	return run{program: bpfProgFromWire, device: "eth0", in: p.bytes()}
}

// arrives is a packet from the wire that goes straight into podA.
func arrives(name string, p packet) packetCase {
	return delivered(name, wireBrings(p), p, podA)
}

func TestFromWireDelivers(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := Config{EBPFRouting: true, Masquerade: masquerade}
		var cases []packetCase
		each(func(name string, family int, transport func(packet) packet) {
			from := func(src, dst member) packet {
				return transport(fromWire().ip(src.addr(family), dst.addr(family)))
			}
			cases = append(cases,
				arrives(name+" from a pod on another node", from(podB, podA)),
				delivered(name+" to the other pod", wireBrings(from(podB, podA2)), from(podB, podA2), podA2),
				arrives(name+" from another node", from(nodeB, podA)),
				arrives(name+" from a pod behind a router", from(podFar, podA)),
				arrives(name+" with two hops left", from(podB, podA).ttl(2)),
				passes(name+" with one hop left", wireBrings(from(podB, podA).ttl(1))),
				passes(name+" with no hop left", wireBrings(from(podB, podA).ttl(0))),
				passes(name+" to a pod address that no pod has", wireBrings(from(podB, ghost))),
				passes(name+" to this node", wireBrings(from(podB, nodeA))),
				passes(name+" to a pod on another node", wireBrings(from(podB, podC))),
				passes(name+" to the world", wireBrings(from(podB, world))),
			)
			cases = append(cases, arrives(name+" from the world", from(world, podA)))
		})
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}

// A packet keeps the mark that an earlier program or the driver gave it.
func TestFromWireKeepsMark(t *testing.T) {
	c := arrives("marked", fromWire().ipv4(podB.v4, podA.v4).udp(1, 2))
	c.mark = 0x1234
	newRig(t, Config{EBPFRouting: true, Masquerade: true}).check(t, []packetCase{c})
}

func TestFromWireExceptions(t *testing.T) {
	v4, v6 := fromWire().ipv4(podB.v4, podA.v4), fromWire().ipv6(podB.v6, podA.v6)
	cases := []packetCase{
		passes("IPv4 options", wireBrings(v4.ipOptions(0x94, 4, 0, 0).udp(1, 2))),
		passes("IPv6 hop-by-hop options", wireBrings(v6.extend(protoHopByHop).udp(1, 2))),
		arrives("IPv6 destination options", v6.extend(protoDstOptions).udp(1, 2)),
		arrives("IPv6 routing header", v6.extend(protoRouting).udp(1, 2)),
		arrives("IPv4 first fragment", v4.udp(1, 2).payload("12345678").fragment(0, true)),
		arrives("IPv4 last fragment", v4.udp(1, 2).payload("12345678").fragment(8, false)),
		arrives("IPv6 first fragment", v6.udp(1, 2).payload("12345678").fragment(0, true)),
		arrives("IPv6 last fragment", v6.udp(1, 2).payload("12345678").fragment(8, false)),
		passes("ARP", wireBrings(fromWire().ether(etherARP).payload("who has"))),
		passes("VLAN", wireBrings(fromWire().ether(etherVLAN).payload("\x00\x64\x08\x00E"))),
		passes("MPLS", wireBrings(fromWire().ether(etherMPLS).payload("label"))),
		passes("neighbour solicitation", wireBrings(fromWire().ipv6(addr("fe80::2"), addr("ff02::1:ff00:1")).ttl(255).icmp(135, 0))),
	}
	for name, dst := range map[string]MAC{"another host": router, "a pod": podA.mac, "all": {255, 255, 255, 255, 255, 255}, "a group": {1, 0, 0x5e, 0, 0, 1}} {
		cases = append(cases,
			passes("IPv4 in a frame for "+name, wireBrings(v4.macs(nodeB.mac, dst).udp(1, 2))),
			passes("IPv6 in a frame for "+name, wireBrings(v6.macs(nodeB.mac, dst).udp(1, 2))),
		)
	}
	// The uplink's MTU has nothing to say about what has come through it, merged by GRO or not.
	big := v4.tcp(1, 2).sized(3000)
	merged := arrives("IPv4 TCP larger than the MTU", big)
	merged.gsoSize = 1448
	cases = append(cases, merged)
	newRig(t, Config{EBPFRouting: true, Masquerade: true}).check(t, cases)
}

// With kernel routing from_wire lets everything pass untouched, garbage included.
func TestFromWireKernelRouting(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := Config{Masquerade: masquerade}
		var cases []packetCase
		each(func(name string, family int, transport func(packet) packet) {
			for _, src := range []member{podB, nodeB, world} {
				for _, dst := range []member{podA, ghost, nodeA} {
					p := transport(fromWire().ip(src.addr(family), dst.addr(family)))
					cases = append(cases, passes(fmt.Sprintf("%s %s to %s", name, src.addr(family), dst.addr(family)), wireBrings(p)))
				}
			}
		})
		t.Run(cfgName(cfg), func(t *testing.T) { newRig(t, cfg).check(t, cases) })
	}
}
