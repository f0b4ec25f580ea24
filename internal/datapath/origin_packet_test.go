package datapath

import (
	"fmt"
	"net/netip"
	"testing"
)

// What the wire brings has a source that can send by it: neither a pod of this node, nor what a tunnelled node has, where that sends by the
// tunnel. A packet that is dropped leaves alone what was decided about others in its place.
func TestFromWireInvalidSource(t *testing.T) {
	for _, cfg := range []Config{{EBPFRouting: true, Masquerade: true}, {EBPFRouting: true}, {}} {
		var cases []packetCase
		each(func(name string, family int, transport func(packet) packet) {
			from := func(src, dst member) run {
				return wireBrings(transport(fromWire().ip(src.addr(family), dst.addr(family))))
			}
			for whose, c := range map[string]struct {
				src member
				dst []member
			}{
				"a pod here":                      {podA2, []member{podA, ghost, nodeA, nodeB, podB, world}},
				"an address of this node's range": {ghost, []member{podA, nodeA}},
				"a tunnelled node's pod":          {podT, []member{podA, ghost, nodeA}},
				"a tunnelled node":                {nodeT, []member{podA, ghost}},
			} {
				for _, dst := range c.dst {
					cases = append(cases, drops(fmt.Sprintf("%s from %s to %s", name, whose, dst.addr(family)), from(c.src, dst), uint32(bpfDropReasonDROP_INVALID_SOURCE)))
				}
			}
			cases = append(cases,
				passes(name+" from a tunnelled node to this one", from(nodeT, nodeA)),
				passes(name+" from a tunnelled node's pod to who is not of the cluster", from(podT, world)),
				passes(name+" from another node to this one", from(nodeB, nodeA)),
			)
		})
		t.Run(cfgName(cfg), func(t *testing.T) {
			r := newRig(t, cfg)
			r.check(t, cases)
			if cfg.EBPFRouting {
				r.leavesDecisionsAlone(t)
			}
		})
	}
}

// leavesDecisionsAlone has forged packets of so many sources dropped that every place of a decision is met, between two packets of a flow.
func (r *rig) leavesDecisionsAlone(t *testing.T) {
	t.Helper()
	flow := fromWire().ipv4(podB.v4, podA.v4).udp(1, 2)
	r.checkOne(t, arrives("before", flow))
	before := r.counters(t)["from_wire invalid_source"].Packets
	forged := netip.MustParseAddr("10.1.4.0")
	r.stage.do(func() {
		for range 256 * 8 {
			_, _ = r.run(wireBrings(fromWire().ipv4(netip.AddrFrom4([4]byte{10, 1, 4, forged.As4()[3]}), podA.v4).udp(1, 2)))
			forged = forged.Next()
		}
	})
	if n := r.counters(t)["from_wire invalid_source"].Packets - before; n != 256*8 {
		t.Errorf("%d forged packets were dropped", n)
	}
	r.checkOne(t, arrives("after", flow))
}

// A source of this node comes by no wire, also with DSR to another node's NodePort: that node sends nothing back as it came.
func TestFromWireSourceOfDirect(t *testing.T) {
	r := newServiceRig(t, Config{DSR: true})
	for _, family := range families {
		r.serve(t, netip.AddrPortFrom(nodeA.addr(family), 30081), bpfServiceFlagSERVICE_DSR, netip.AddrPortFrom(podA2.addr(family), 8080))
		for _, dst := range []member{nodeB, podA2, nodeA} {
			r.checkOne(t, drops("forged", wireBrings(eth(nodeB.mac, nodeA.mac).ip(podA.addr(family), dst.addr(family)).tcp(1, 30081).segment(tcpSYN, 1, 0)),
				uint32(bpfDropReasonDROP_INVALID_SOURCE)))
		}
	}
}

// A pod behind a tunnel reaches a Service of this node by its tunnel, or as its node: what a wire brings with the pod's own address is
// somebody else's, wherever it is addressed to, and is kept from the Service's pod.
func TestFromWireInvalidSourceOfService(t *testing.T) {
	for _, cfg := range []Config{{}, {DSR: true}} {
		r := newServiceRig(t, cfg)
		for _, family := range families {
			frontend := netip.AddrPortFrom(world.addr(family), 80) // a load balancer's
			r.serve(t, frontend, 0, netip.AddrPortFrom(podA2.addr(family), 8080))
			asks := func(from member) []byte {
				return eth(router, nodeA.mac).ip(from.addr(family), frontend.Addr()).tcp(41000, 80).segment(tcpSYN, 1, 0).bytes()
			}
			r.checkOne(t, drops(fmt.Sprintf("IPv%d from a tunnelled node's pod", family), run{program: bpfProgFromWire, in: asks(podT)}, uint32(bpfDropReasonDROP_INVALID_SOURCE)))
			for who, from := range map[string]member{"a tunnelled node": nodeT, "another node's pod": podB} {
				there := delivered(fmt.Sprintf("IPv%d from %s", family, who), run{program: bpfProgFromWire, in: asks(from)},
					eth(router, nodeA.mac).ip(from.addr(family), podA2.addr(family)).tcp(41000, 8080).segment(tcpSYN, 1, 0), podA2)
				there.in = asks(from)
				r.checkOne(t, there)
			}
		}
	}
}

// A client behind a tunnel is not answered directly: what the backend's node sends into the tunnel would bear this one's address, which the
// other end takes from nobody else. Nor is one of the backend's own node, which takes nothing with a source of its own from the wire.
func TestDirectNotForThese(t *testing.T) {
	r := newServiceRig(t, Config{DSR: true})
	for _, program := range []string{bpfProgFromWire, bpfProgWireXdp} {
		for _, family := range families {
			f := flowOf(family)
			r.serve(t, f.frontend, bpfServiceFlagSERVICE_DSR, f.backend)
			for of, direct := range map[member]bool{nodeT: false, nodeB: false, podB: false, world: true} {
				client := of.addr(family)
				f.client = netip.AddrPortFrom(client, 41000)
				p := eth(router, nodeA.mac).ip(client, f.frontend.Addr()).tcp(41000, f.frontend.Port()).segment(tcpSYN, 1, 0)
				r.stage.do(func() { _, _ = r.run(run{program: program, in: p.bytes()}) })
				var there bpfNatEntry
				if err := r.d.objects.maps.NatPending.Lookup(tupleOf(f.client, f.frontend, protoTCP), &there); err != nil {
					t.Fatalf("%s: client %s has begun nothing: %v", program, client, err)
				}
				if got := bpfNatFlag(there.Flags)&bpfNatFlagNAT_DSR != 0; got != direct {
					t.Errorf("%s: client %s is answered directly: %t", program, client, got)
				}
				if own := nodeA.addr(family); !direct && there.Source.addr() != own {
					t.Errorf("%s: the backend sees %s, not %s", program, there.Source.addr(), own)
				}
			}
		}
	}
}

// What this node sends for somebody else to a backend behind a tunnel has an address by which the other end knows it, whatever the uplink has.
func TestTunnelledBackendSeesInternalIP(t *testing.T) {
	r := newServiceRig(t, Config{})
	if err := r.d.Tunnel.SetSources(nodeA.v4, nodeA.v6); err != nil {
		t.Fatal(err)
	}
	stranger := Uplink{IPv4: addr("192.0.2.77"), IPv6: addr("2001:db8::77"), MAC: nodeA.mac, MTU: 1500}
	if _, err := r.d.Uplinks.Sync(map[int]Uplink{r.stage.devices["eth0"]: stranger}); err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		f := flowOf(family)
		r.serve(t, f.frontend, 0, netip.AddrPortFrom(podT.addr(family), 8080))
		p := eth(router, nodeA.mac).ip(f.client.Addr(), f.frontend.Addr()).tcp(f.client.Port(), f.frontend.Port()).segment(tcpSYN, 1, 0)
		r.stage.do(func() { _, _ = r.run(wireBrings(p)) })
		var there bpfNatEntry
		if err := r.d.objects.maps.NatPending.Lookup(tupleOf(f.client, f.frontend, protoTCP), &there); err != nil {
			t.Fatal(err)
		}
		if there.Source.addr() != nodeA.addr(family) {
			t.Errorf("IPv%d: the backend sees %s, not %s", family, there.Source.addr(), nodeA.addr(family))
		}
	}
}

// Nothing gets this node's address on its way to the tunnels' port of what may be a node: its VXLAN would be believed.
func TestNothingForgesTunnels(t *testing.T) {
	const port = vxlanPort
	forged := uint32(bpfDropReasonDROP_TUNNEL_PORT)
	for _, family := range families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			r := newServiceRig(t, Config{TunnelPort: port})
			toWorld := func(p packet) run { return stackSends(p) }
			from := toWire().ip(podA.addr(family), world.addr(family))
			r.checkOne(t, drops("masqueraded", toWorld(from.udp(1000, port).payload("VXLAN")), forged))
			r.verdict(t, verdictNext, toWorld(from.udp(1000, port+1).payload("VXLAN")))
			r.verdict(t, verdictNext, toWorld(from.tcp(1000, port).segment(tcpSYN, 1, 0)))

			frontend := netip.AddrPortFrom(nodeA.addr(family), 30082)
			for _, c := range []struct {
				backend member
				forged  bool
			}{{nodeA, true}, {nodeB, true}, {nodeT, true}, {world, true}, {podFar, true}, {podB, false}, {podA2, false}, {podT, false}} {
				r.serve(t, frontend, 0, netip.AddrPortFrom(c.backend.addr(family), port))
				for client, in := range map[string]run{
					"a pod":             podSends(fromPod().ip(podA.addr(family), frontend.Addr()).udp(2000, frontend.Port()).payload("VXLAN")),
					"the world":         wireBrings(eth(router, nodeA.mac).ip(world.addr(family), frontend.Addr()).udp(2000, frontend.Port()).payload("VXLAN")),
					"the world, at XDP": {program: bpfProgWireXdp, in: eth(router, nodeA.mac).ip(world.addr(family), frontend.Addr()).udp(2000, frontend.Port()).payload("VXLAN").bytes()},
				} {
					before := r.counters(t)[in.program+" tunnel_port"].Packets
					r.stage.do(func() { _, _ = r.run(in) })
					if dropped := r.counters(t)[in.program+" tunnel_port"].Packets > before; dropped != c.forged {
						t.Errorf("from %s to a Service with the tunnels' port of %s: dropped as forged: %t", client, c.backend.addr(family), dropped)
					}
				}
				r.forgetConnections(t)
			}
		})
	}
}

// Without tunnels their port is like any other.
func TestTunnelPortWithoutTunnels(t *testing.T) {
	r := newServiceRig(t, Config{})
	r.verdict(t, verdictNext, stackSends(toWire().ip(podA.v4, world.v4).udp(1000, vxlanPort).payload("VXLAN")))
}

// verdict runs a packet, whatever it looks like afterwards.
func (r *rig) verdict(t *testing.T, want verdict, in run) {
	t.Helper()
	var got outcome
	var err error
	r.stage.do(func() { got, err = r.run(in) })
	if err != nil || got.verdict != want {
		t.Errorf("verdict %s, expected %s: %v\n%s", got.verdict, want, err, layers(in.in))
	}
}

// forgetConnections removes all connections that translation knows.
func (r *rig) forgetConnections(t *testing.T) {
	t.Helper()
	if err := clearMap(r.d.objects.maps.NatPending); err != nil {
		t.Fatal(err)
	}
	if err := clearMap(r.d.objects.maps.Nat); err != nil {
		t.Fatal(err)
	}
}

// What kube-proxy translates in the stack comes to from_wire with the Service's address, and to to_pod with the pod's: a source that no wire
// brings is dropped there, and what was decided about it by the tunnel is not held for the wire.
func TestToPodInvalidSource(t *testing.T) {
	for _, cfg := range []Config{{StackServices: true}, {EBPFRouting: true, StackServices: true}} {
		r := newPolicyRig(t, cfg)
		uplink := Uplink{IPv4: nodeA.v4, IPv6: nodeA.v6, MAC: nodeA.mac, MTU: 1500}
		if _, err := r.d.Uplinks.Sync(map[int]Uplink{r.stage.devices["eth0"]: uplink}); err != nil {
			t.Fatal(err)
		}
		each(func(name string, family int, transport func(packet) packet) {
			brought := func(by string, src member) run {
				in := stackDelivers(transport(toPod().ip(src.addr(family), podA.addr(family))))
				in.ingress = by
				return in
			}
			invalid := uint32(bpfDropReasonDROP_INVALID_SOURCE)
			r.check(t, []packetCase{
				passes(name+" of a tunnelled node's pod, by the tunnel", brought("tunnel", podT)),
				drops(name+" of a tunnelled node's pod, by the wire", brought("eth0", podT), invalid),
				passes(name+" of a tunnelled node's pod, by the tunnel again", brought("tunnel", podT)),
				passes(name+" of a tunnelled node's pod, by some other device", brought("blpoda2", podT)),
				passes(name+" of a tunnelled node's pod, as the node itself sends it", brought("", podT)),
				drops(name+" of a pod here, by the wire", brought("eth0", podA2), invalid),
				drops(name+" of a pod here, by some other device", brought("tunnel", podA2), invalid),
				passes(name+" of an address of this node's range that is no pod's, by some other device", brought("tunnel", ghost)),
				passes(name+" of a pod here, by its device", brought("blpoda2", podA2)),
				passes(name+" of a tunnelled node, by the wire", brought("eth0", nodeT)),
				passes(name+" that the stack has masqueraded", brought("eth0", nodeA)),
				passes(name+" of the world, by the wire", brought("eth0", world)),
			})
		})
	}
}

// Who reports about a translated packet has seen it: a router on the wire none that went by a tunnel, which ends at the node that reports, and nobody
// on the wire one between two pods here.
func TestWhoMayReport(t *testing.T) {
	forged := uint32(bpfDropReasonDROP_FORGED_ERROR)
	r := newServiceRig(t, Config{})
	for i, family := range families {
		kind, code := []byte{3, 1}[i], []byte{1, 4}[i] // host unreachable, port unreachable
		f := flowOf(family)
		report := func(of member, to netip.Addr, about packet) run {
			return wireBrings(quoting(eth(router, nodeA.mac), of.addr(family), to, kind, code, 0, about, 500))
		}
		for _, c := range []struct {
			name    string
			backend member
			of      map[member]bool
		}{
			{"to a pod behind a tunnel", podT, map[member]bool{nodeT: true, nodeB: false, world: false}},
			{"to a pod on the link", podB, map[member]bool{nodeB: true, nodeT: true, world: true}},
		} {
			f.backend = netip.AddrPortFrom(c.backend.addr(family), 8080)
			r.enterWith(t, f, protoUDP, 0)
			sent := eth(MAC{}, MAC{}).ip(f.node.Addr(), f.backend.Addr()).udp(f.node.Port(), f.backend.Port()).payload("asks")
			for of, may := range c.of {
				in := report(of, f.node.Addr(), sent)
				if name := fmt.Sprintf("IPv%d %s, by %s", family, c.name, of.addr(family)); may {
					r.verdict(t, verdictRedirect, in)
				} else {
					r.checkOne(t, drops(name, in, forged))
				}
			}
		}
	}
}

// The same of what the stack delivers: an error about a connection of two pods here, through a Service, is of the other pod or of the node itself.
func TestWhoMayReportToStack(t *testing.T) {
	r := newServiceRig(t, Config{EBPFRouting: true})
	for i, family := range families {
		kind, code := []byte{3, 1}[i], []byte{1, 4}[i]
		pod, other, frontend := end{podA, 40000}.at(family), end{podA2, 8080}.at(family), end{clusterIP, 80}.at(family)
		there, back := connectionOf(pod, other, bpfNatFlagNAT_INITIATOR), connectionOf(frontend, pod, 0)
		now, err := Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		there.Seen, back.Seen = uint64(now), uint64(now)
		for key, value := range map[bpfTuple]bpfNatEntry{tupleOf(pod, frontend, protoUDP): there, tupleOf(other, pod, protoUDP): back} {
			if err := r.d.objects.maps.Nat.Put(key, value); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.d.objects.maps.NatPods.Put(addressOf(pod.Addr()), uint64(now)); err != nil {
			t.Fatal(err)
		}
		sent := eth(MAC{}, MAC{}).ip(pod.Addr(), other.Addr()).udp(pod.Port(), other.Port()).payload("asks")
		for by, from := range map[string]member{"blpoda2": podA2, "": nodeA, "eth0": nodeB, "tunnel": nodeT} {
			in := stackDelivers(quoting(toPod(), from.addr(family), pod.Addr(), kind, code, 0, sent, 500))
			in.ingress = by
			if by == "blpoda2" || by == "" {
				r.verdict(t, verdictNext, in)
			} else {
				r.checkOne(t, drops(fmt.Sprintf("IPv%d by %q", family, by), in, uint32(bpfDropReasonDROP_FORGED_ERROR)))
			}
		}
	}
}
