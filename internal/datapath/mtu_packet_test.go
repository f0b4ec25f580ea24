package datapath

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// What does not fit the way to the other node goes to the stack, which answers or fragments. The edge is
// exact: a packet of the MTU is redirected, one byte more is not.
func TestFromPodTooBig(t *testing.T) {
	var cases []packetCase
	each(func(name string, family int, transport func(packet) packet) {
		to := func(dst member) packet { return transport(fromPod().ip(podA.addr(family), dst.addr(family))) }
		sized := func(dst member, n int) packet { return to(dst).sized(n) }
		cases = append(cases,
			wired(name+" of the MTU", sized(podB, remoteMTU)),
			passes(name+" one byte over the MTU", podSends(sized(podB, remoteMTU+1))),
			passes(name+" of the pod's MTU", podSends(sized(podB, 1500))),
			resolved(name+" of the MTU to an unresolved node", sized(podC, remoteMTU)),
			passes(name+" one byte over the MTU to an unresolved node", podSends(sized(podC, remoteMTU+1))),
			// No wire lies between two pods of one node.
			delivered(name+" of the pod's MTU to a pod here", podSends(to(podA2)), sized(podA2, 1500), podA2),
		)
	})
	newRig(t, Config{EBPFRouting: true, Masquerade: true}).check(t, cases)
}

// A GSO packet is larger than the MTU and still fits, if its segments do.
func TestFromPodTooBigSegments(t *testing.T) {
	const whole = 3000
	timestamps := make([]byte, 12)
	var cases []packetCase
	edge := func(name string, p packet, headers int) {
		p = p.sized(whole)
		segments := func(size int) run {
			in := podSends(p)
			in.gsoSize = uint32(size)
			return in
		}
		fits := wired(name+", segments of the MTU", p)
		fits.gsoSize = uint32(remoteMTU - headers)
		cases = append(cases, fits,
			passes(name+", segments one byte over the MTU", segments(remoteMTU-headers+1)),
			passes(name+", segments as large as can be", segments(whole-headers)),
		)
	}
	never := func(name string, p packet) {
		in := podSends(p.sized(whole))
		in.gsoSize = 100
		cases = append(cases, passes(name+" is left to the stack", in))
		small := wired(name+" that fits as a whole", p.sized(remoteMTU))
		small.gsoSize = 100
		cases = append(cases, small)
	}
	v4, v6 := fromPod().ipv4(podA.v4, podB.v4), fromPod().ipv6(podA.v6, podB.v6)
	edge("IPv4 TCP", v4.tcp(1, 2), ipv4Len+20)
	edge("IPv4 TCP with timestamps", v4.tcpOptions(1, 2, timestamps), ipv4Len+32)
	edge("IPv4 TCP with all option space", v4.tcpOptions(1, 2, make([]byte, 40)), ipv4Len+60)
	edge("IPv4 UDP", v4.udp(1, 2), ipv4Len+8)
	edge("IPv6 TCP", v6.tcp(1, 2), ipv6Len+20)
	edge("IPv6 TCP with timestamps", v6.tcpOptions(1, 2, timestamps), ipv6Len+32)
	edge("IPv6 UDP", v6.udp(1, 2), ipv6Len+8)
	never("IPv4 ICMP", v4.echo())
	never("IPv6 ICMP", v6.echo())
	never("IPv4 SCTP", v4.raw(protoSCTP, make([]byte, 12)))
	never("IPv6 TCP behind destination options", v6.extend(protoDstOptions).tcp(1, 2))
	never("IPv6 UDP behind a fragment header", v6.udp(1, 2).fragment(0, true))

	here := fromPod().ipv4(podA.v4, podA2.v4).tcp(1, 2).sized(whole)
	local := delivered("IPv4 TCP to a pod here, segments of any size", podSends(here), here, podA2)
	local.gsoSize = 1460
	cases = append(cases, local)
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	r.stage.setMTU(t, "blpoda", remoteMTU) // else no fragment goes straight
	r.check(t, cases)
}

// Every length around the edge, in one sweep.
func TestFromPodTooBigSweep(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	for _, family := range []int{4, 6} {
		for n := remoteMTU - 40; n <= remoteMTU+40; n++ {
			p := fromPod().ip(podA.addr(family), podB.addr(family)).udp(1, 2).sized(n)
			c := wired(fmt.Sprintf("IPv%d %d bytes", family, n), p)
			if n > remoteMTU {
				c = passes(c.name, podSends(p))
			}
			r.checkOne(t, c)
		}
	}
}

// Fragments go straight only where all of their packet do, however large its others are: a device that allows more than the way
// carries may have brought some that the stack has to cut.
func TestFromPodFragments(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	for _, mtu := range []int{remoteMTU - 1, remoteMTU, remoteMTU + 1, 1500} {
		r.stage.setMTU(t, "blpoda", mtu)
		for _, family := range families {
			for dst, out := range map[member]func(string, packet) packetCase{podB: wired, podC: resolved, podT: tunnelled, podT6: tunnelled} {
				whole := fromPod().ip(podA.addr(family), dst.addr(family)).udp(1, 2).payload("12345678")
				for name, p := range map[string]packet{"first": whole.fragment(0, true), "last": whole.fragment(1024, false)} {
					name = fmt.Sprintf("IPv%d %s fragment to %s from a device of %d bytes", family, name, dst.v4, mtu)
					if mtu > remoteMTU {
						r.checkOne(t, passes(name, podSends(p)))
					} else {
						r.checkOne(t, out(name, p))
					}
				}
			}
		}
		here := fromPod().ip(podA.v4, podA2.v4).udp(1, 2).payload("12345678").fragment(0, true)
		r.checkOne(t, delivered("to a pod here", podSends(here), here, podA2))
	}
}

// setMTU gives a device of the stage another MTU for the rest of the test.
func (s *stage) setMTU(tb testing.TB, device string, mtu int) {
	tb.Helper()
	set := func(mtu int) {
		var err error
		s.do(func() {
			err = netlink.LinkSetMTU(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: s.devices[device]}}, mtu)
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	set(mtu)
	tb.Cleanup(func() { set(1500) })
}
