package fwd_test

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// What exceeds the path MTU to the other node goes to the stack, which sends an ICMP error or fragments. The edge is
// exact: a packet of the MTU is redirected, one byte more is not.
func TestFromPodTooBig(t *testing.T) {
	var cases []harness.PacketCase
	harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
		to := func(dst fixtures.Member) fixtures.Packet {
			return transport(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), dst.Addr(family)))
		}
		sized := func(dst fixtures.Member, n int) fixtures.Packet { return to(dst).Sized(n) }
		cases = append(cases,
			harness.Wired(name+" of the MTU", sized(fixtures.PodB, fixtures.RemoteMTU)),
			harness.Passes(name+" one byte over the MTU", harness.PodSends(sized(fixtures.PodB, fixtures.RemoteMTU+1))),
			harness.Passes(name+" of the pod's MTU", harness.PodSends(sized(fixtures.PodB, 1500))),
			resolved(name+" of the MTU to an unresolved node", sized(fixtures.PodC, fixtures.RemoteMTU)),
			harness.Passes(name+" one byte over the MTU to an unresolved node", harness.PodSends(sized(fixtures.PodC, fixtures.RemoteMTU+1))),
			// No wire lies between two pods of one node.
			harness.Delivered(name+" of the pod's MTU to a pod here", harness.PodSends(to(fixtures.PodA2)), sized(fixtures.PodA2, 1500), fixtures.PodA2),
		)
	})
	harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true}).Check(t, cases)
}

// A GSO packet is larger than the MTU and still fits, if its segments do.
func TestFromPodTooBigSegments(t *testing.T) {
	const whole = 3000
	timestamps := make([]byte, 12)
	var cases []harness.PacketCase
	edge := func(name string, p fixtures.Packet, headers int) {
		p = p.Sized(whole)
		segments := func(size int) harness.Run {
			in := harness.PodSends(p)
			in.GsoSize = uint32(size)
			return in
		}
		fits := harness.Wired(name+", segments of the MTU", p)
		fits.GsoSize = uint32(fixtures.RemoteMTU - headers)
		cases = append(cases, fits,
			harness.Passes(name+", segments one byte over the MTU", segments(fixtures.RemoteMTU-headers+1)),
			harness.Passes(name+", segments as large as can be", segments(whole-headers)),
		)
	}
	never := func(name string, p fixtures.Packet) {
		in := harness.PodSends(p.Sized(whole))
		in.GsoSize = 100
		cases = append(cases, harness.Passes(name+" is left to the stack", in))
		small := harness.Wired(name+" that fits as a whole", p.Sized(fixtures.RemoteMTU))
		small.GsoSize = 100
		cases = append(cases, small)
	}
	v4, v6 := fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4), fixtures.FromPod().Ipv6(fixtures.PodA.V6, fixtures.PodB.V6)
	edge("IPv4 TCP", v4.Tcp(1, 2), fixtures.Ipv4Len+20)
	edge("IPv4 TCP with timestamps", v4.TcpOptions(1, 2, timestamps), fixtures.Ipv4Len+32)
	edge("IPv4 TCP with all option space", v4.TcpOptions(1, 2, make([]byte, 40)), fixtures.Ipv4Len+60)
	edge("IPv4 UDP", v4.Udp(1, 2), fixtures.Ipv4Len+8)
	edge("IPv6 TCP", v6.Tcp(1, 2), fixtures.Ipv6Len+20)
	edge("IPv6 TCP with timestamps", v6.TcpOptions(1, 2, timestamps), fixtures.Ipv6Len+32)
	edge("IPv6 UDP", v6.Udp(1, 2), fixtures.Ipv6Len+8)
	never("IPv4 ICMP", v4.Echo())
	never("IPv6 ICMP", v6.Echo())
	never("IPv4 SCTP", v4.Raw(fixtures.ProtoSCTP, make([]byte, 12)))
	never("IPv6 TCP behind destination options", v6.Extend(fixtures.ProtoDstOptions).Tcp(1, 2))
	never("IPv6 UDP behind a fragment header", v6.Udp(1, 2).Fragment(0, true))

	here := fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodA2.V4).Tcp(1, 2).Sized(whole)
	local := harness.Delivered("IPv4 TCP to a pod here, segments of any size", harness.PodSends(here), here, fixtures.PodA2)
	local.GsoSize = 1460
	cases = append(cases, local)
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	setMTU(r.Netns, t, "blpoda", fixtures.RemoteMTU) // else no fragment goes straight
	r.Check(t, cases)
}

// Every length around the edge, in one sweep.
func TestFromPodTooBigSweep(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	for _, family := range []int{4, 6} {
		for n := fixtures.RemoteMTU - 40; n <= fixtures.RemoteMTU+40; n++ {
			p := fixtures.FromPod().Ip(fixtures.PodA.Addr(family), fixtures.PodB.Addr(family)).Udp(1, 2).Sized(n)
			c := harness.Wired(fmt.Sprintf("IPv%d %d bytes", family, n), p)
			if n > fixtures.RemoteMTU {
				c = harness.Passes(c.Name, harness.PodSends(p))
			}
			r.CheckOne(t, c)
		}
	}
}

// Fragments go straight only where all of their packet do, however large its others are: a device that allows more than the path
// carries may have brought some that the stack has to cut.
func TestFromPodFragments(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	for _, mtu := range []int{fixtures.RemoteMTU - 1, fixtures.RemoteMTU, fixtures.RemoteMTU + 1, 1500} {
		setMTU(r.Netns, t, "blpoda", mtu)
		for _, family := range fixtures.Families {
			for dst, out := range map[fixtures.Member]func(string, fixtures.Packet) harness.PacketCase{fixtures.PodB: harness.Wired, fixtures.PodC: resolved, fixtures.PodT: tunnelled, fixtures.PodT6: tunnelled} {
				whole := fixtures.FromPod().Ip(fixtures.PodA.Addr(family), dst.Addr(family)).Udp(1, 2).Payload("12345678")
				for name, p := range map[string]fixtures.Packet{"first": whole.Fragment(0, true), "last": whole.Fragment(1024, false)} {
					name = fmt.Sprintf("IPv%d %s fragment to %s from a device of %d bytes", family, name, dst.V4, mtu)
					if mtu > fixtures.RemoteMTU {
						r.CheckOne(t, harness.Passes(name, harness.PodSends(p)))
					} else {
						r.CheckOne(t, out(name, p))
					}
				}
			}
		}
		here := fixtures.FromPod().Ip(fixtures.PodA.V4, fixtures.PodA2.V4).Udp(1, 2).Payload("12345678").Fragment(0, true)
		r.CheckOne(t, harness.Delivered("to a pod here", harness.PodSends(here), here, fixtures.PodA2))
	}
}

// setMTU gives a device of the stage another MTU for the rest of the test.
func setMTU(s *harness.Netns, tb testing.TB, device string, mtu int) {
	tb.Helper()
	set := func(mtu int) {
		var err error
		s.Do(func() {
			err = netlink.LinkSetMTU(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: s.Devices[device]}}, mtu)
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	set(mtu)
	tb.Cleanup(func() { set(1500) })
}
