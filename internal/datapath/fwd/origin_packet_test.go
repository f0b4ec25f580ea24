package fwd_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// What the wire brings has a source that can send by it: neither a pod of this node, nor what a tunnelled node has, where that sends by the
// tunnel. A packet that is dropped leaves alone what was decided about others in its place.
func TestFromWireInvalidSource(t *testing.T) {
	for _, cfg := range []config.Datapath{{EBPFRouting: true, Masquerade: true}, {EBPFRouting: true}, {}} {
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			from := func(src, dst fixtures.Member) harness.Run {
				return harness.WireBrings(transport(fixtures.FromWire().Ip(src.Addr(family), dst.Addr(family))))
			}
			for whose, c := range map[string]struct {
				src fixtures.Member
				dst []fixtures.Member
			}{
				"a pod here":                      {fixtures.PodA2, []fixtures.Member{fixtures.PodA, fixtures.NoPod, fixtures.NodeA, fixtures.NodeB, fixtures.PodB, fixtures.External}},
				"an address of this node's range": {fixtures.NoPod, []fixtures.Member{fixtures.PodA, fixtures.NodeA}},
				"a tunnelled node's pod":          {fixtures.PodT, []fixtures.Member{fixtures.PodA, fixtures.NoPod, fixtures.NodeA}},
				"a tunnelled node":                {fixtures.NodeT, []fixtures.Member{fixtures.PodA, fixtures.NoPod}},
			} {
				for _, dst := range c.dst {
					cases = append(cases, harness.Drops(fmt.Sprintf("%s from %s to %s", name, whose, dst.Addr(family)), from(c.src, dst), uint32(bpf.DropReasonDROP_INVALID_SOURCE)))
				}
			}
			cases = append(cases,
				harness.Passes(name+" from a tunnelled node to this one", from(fixtures.NodeT, fixtures.NodeA)),
				harness.Passes(name+" from a tunnelled node's pod to who is not of the cluster", from(fixtures.PodT, fixtures.External)),
				harness.Passes(name+" from another node to this one", from(fixtures.NodeB, fixtures.NodeA)),
			)
		})
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			r := harness.New(t, cfg)
			r.Check(t, cases)
			if cfg.EBPFRouting {
				leavesDecisionsAlone(r, t)
			}
		})
	}
}

// leavesDecisionsAlone has forged packets of so many sources dropped that every place of a decision is met, between two packets of a flow.
func leavesDecisionsAlone(r *harness.Harness, t *testing.T) {
	t.Helper()
	flow := fixtures.FromWire().Ipv4(fixtures.PodB.V4, fixtures.PodA.V4).Udp(1, 2)
	r.CheckOne(t, harness.Arrives("before", flow))
	before := r.Counters(t)["from_wire invalid_source"].Packets
	forged := netip.MustParseAddr("10.1.4.0")
	r.Netns.Do(func() {
		for range 256 * 8 {
			_, _ = r.Run(harness.WireBrings(fixtures.FromWire().Ipv4(netip.AddrFrom4([4]byte{10, 1, 4, forged.As4()[3]}), fixtures.PodA.V4).Udp(1, 2)))
			forged = forged.Next()
		}
	})
	if n := r.Counters(t)["from_wire invalid_source"].Packets - before; n != 256*8 {
		t.Errorf("%d forged packets were dropped", n)
	}
	r.CheckOne(t, harness.Arrives("after", flow))
}

// A source of this node comes by no wire, also with DSR to another node's NodePort: that node sends nothing back as it came.
func TestFromWireSourceOfDirect(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{DSR: true})
	for _, family := range fixtures.Families {
		r.Serve(t, netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30081), bpf.ServiceFlagSERVICE_DSR, netip.AddrPortFrom(fixtures.PodA2.Addr(family), 8080))
		for _, dst := range []fixtures.Member{fixtures.NodeB, fixtures.PodA2, fixtures.NodeA} {
			r.CheckOne(t, harness.Drops("forged", harness.WireBrings(fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac).Ip(fixtures.PodA.Addr(family), dst.Addr(family)).Tcp(1, 30081).Segment(fixtures.TcpSYN, 1, 0)),
				uint32(bpf.DropReasonDROP_INVALID_SOURCE)))
		}
	}
}

// A pod behind a tunnel reaches a Service of this node by its tunnel, or as its node: what a wire brings with the pod's own address is
// another sender's, wherever it is addressed to, and is kept from the Service's pod.
func TestFromWireInvalidSourceOfService(t *testing.T) {
	for _, cfg := range []config.Datapath{{}, {DSR: true}} {
		r := harness.NewServices(t, cfg)
		for _, family := range fixtures.Families {
			frontend := netip.AddrPortFrom(fixtures.External.Addr(family), 80) // a load balancer's
			r.Serve(t, frontend, 0, netip.AddrPortFrom(fixtures.PodA2.Addr(family), 8080))
			asks := func(from fixtures.Member) []byte {
				return fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(from.Addr(family), frontend.Addr()).Tcp(41000, 80).Segment(fixtures.TcpSYN, 1, 0).Bytes()
			}
			r.CheckOne(t, harness.Drops(fmt.Sprintf("IPv%d from a tunnelled node's pod", family), harness.Run{Program: bpf.ProgFromWire, In: asks(fixtures.PodT)}, uint32(bpf.DropReasonDROP_INVALID_SOURCE)))
			for who, from := range map[string]fixtures.Member{"a tunnelled node": fixtures.NodeT, "another node's pod": fixtures.PodB} {
				there := harness.Delivered(fmt.Sprintf("IPv%d from %s", family, who), harness.Run{Program: bpf.ProgFromWire, In: asks(from)},
					fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(from.Addr(family), fixtures.PodA2.Addr(family)).Tcp(41000, 8080).Segment(fixtures.TcpSYN, 1, 0), fixtures.PodA2)
				there.In = asks(from)
				r.CheckOne(t, there)
			}
		}
	}
}

// DSR does not apply to a client behind a tunnel: the reply of the backend's node would carry this node's address, which
// the other end of the tunnel accepts from no other node. Nor does it to a client of the backend's own node, which
// accepts no source of its own from the wire.
func TestDirectNotForThese(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{DSR: true})
	for _, program := range []string{bpf.ProgFromWire, bpf.ProgWireXdp} {
		for _, family := range fixtures.Families {
			f := fixtures.FlowOf(family)
			r.Serve(t, f.Frontend, bpf.ServiceFlagSERVICE_DSR, f.Backend)
			for of, direct := range map[fixtures.Member]bool{fixtures.NodeT: false, fixtures.NodeB: false, fixtures.PodB: false, fixtures.External: true} {
				client := of.Addr(family)
				f.Client = netip.AddrPortFrom(client, 41000)
				p := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(client, f.Frontend.Addr()).Tcp(41000, f.Frontend.Port()).Segment(fixtures.TcpSYN, 1, 0)
				r.Netns.Do(func() { _, _ = r.Run(harness.Run{Program: program, In: p.Bytes()}) })
				var there bpf.NatEntry
				if err := r.D.Objects.Maps.NatPending.Lookup(bpf.TupleOf(f.Client, f.Frontend, fixtures.ProtoTCP), &there); err != nil {
					t.Fatalf("%s: client %s has begun nothing: %v", program, client, err)
				}
				if got := bpf.NatFlag(there.Flags)&bpf.NatFlagNAT_DSR != 0; got != direct {
					t.Errorf("%s: client %s gets direct replies: %t", program, client, got)
				}
				if own := fixtures.NodeA.Addr(family); !direct && there.Source.Addr() != own {
					t.Errorf("%s: the backend sees %s, not %s", program, there.Source.Addr(), own)
				}
			}
		}
	}
}

// Packets that this node forwards to a backend behind a tunnel have the node's address in the tunnel, whatever the uplink has.
func TestTunnelledBackendSeesInternalIP(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	if err := r.D.Tunnel.SetSources(fixtures.NodeA.V4, fixtures.NodeA.V6); err != nil {
		t.Fatal(err)
	}
	stranger := fwd.Uplink{IPv4: fixtures.Addr("192.0.2.77"), IPv6: fixtures.Addr("2001:db8::77"), MAC: fixtures.NodeA.Mac, MTU: 1500}
	if _, err := r.D.Uplinks.Sync(map[int]fwd.Uplink{r.Netns.Devices["eth0"]: stranger}); err != nil {
		t.Fatal(err)
	}
	for _, family := range fixtures.Families {
		f := fixtures.FlowOf(family)
		r.Serve(t, f.Frontend, 0, netip.AddrPortFrom(fixtures.PodT.Addr(family), 8080))
		p := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(f.Client.Addr(), f.Frontend.Addr()).Tcp(f.Client.Port(), f.Frontend.Port()).Segment(fixtures.TcpSYN, 1, 0)
		r.Netns.Do(func() { _, _ = r.Run(harness.WireBrings(p)) })
		var there bpf.NatEntry
		if err := r.D.Objects.Maps.NatPending.Lookup(bpf.TupleOf(f.Client, f.Frontend, fixtures.ProtoTCP), &there); err != nil {
			t.Fatal(err)
		}
		if there.Source.Addr() != fixtures.NodeA.Addr(family) {
			t.Errorf("IPv%d: the backend sees %s, not %s", family, there.Source.Addr(), fixtures.NodeA.Addr(family))
		}
	}
}

// No packet gets this node's address to the tunnels' port of a possible node, which would accept its VXLAN.
func TestNothingForgesTunnels(t *testing.T) {
	const port = fixtures.VxlanPort
	forged := uint32(bpf.DropReasonDROP_TUNNEL_PORT)
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			r := harness.NewServices(t, config.Datapath{TunnelPort: port})
			toWorld := func(p fixtures.Packet) harness.Run { return harness.StackSends(p) }
			from := fixtures.ToWire().Ip(fixtures.PodA.Addr(family), fixtures.External.Addr(family))
			r.CheckOne(t, harness.Drops("masqueraded", toWorld(from.Udp(1000, port).Payload("VXLAN")), forged))
			verdictRig(r, t, harness.VerdictNext, toWorld(from.Udp(1000, port+1).Payload("VXLAN")))
			verdictRig(r, t, harness.VerdictNext, toWorld(from.Tcp(1000, port).Segment(fixtures.TcpSYN, 1, 0)))

			frontend := netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30082)
			for _, c := range []struct {
				backend fixtures.Member
				forged  bool
			}{{fixtures.NodeA, true}, {fixtures.NodeB, true}, {fixtures.NodeT, true}, {fixtures.External, true}, {fixtures.PodFar, true}, {fixtures.PodB, false}, {fixtures.PodA2, false}, {fixtures.PodT, false}} {
				r.Serve(t, frontend, 0, netip.AddrPortFrom(c.backend.Addr(family), port))
				for client, in := range map[string]harness.Run{
					"a pod":                    harness.PodSends(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), frontend.Addr()).Udp(2000, frontend.Port()).Payload("VXLAN")),
					"an external host":         harness.WireBrings(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(fixtures.External.Addr(family), frontend.Addr()).Udp(2000, frontend.Port()).Payload("VXLAN")),
					"an external host, at XDP": {Program: bpf.ProgWireXdp, In: fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(fixtures.External.Addr(family), frontend.Addr()).Udp(2000, frontend.Port()).Payload("VXLAN").Bytes()},
				} {
					before := r.Counters(t)[in.Program+" tunnel_port"].Packets
					r.Netns.Do(func() { _, _ = r.Run(in) })
					if dropped := r.Counters(t)[in.Program+" tunnel_port"].Packets > before; dropped != c.forged {
						t.Errorf("from %s to a Service with the tunnels' port of %s: dropped as forged: %t", client, c.backend.Addr(family), dropped)
					}
				}
				r.ForgetNAT(t)
			}
		})
	}
}

// Without tunnels their port is like any other.
func TestTunnelPortWithoutTunnels(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	verdictRig(r, t, harness.VerdictNext, harness.StackSends(fixtures.ToWire().Ip(fixtures.PodA.V4, fixtures.External.V4).Udp(1000, fixtures.VxlanPort).Payload("VXLAN")))
}

// verdictRig runs a packet, whatever it looks like afterwards.
func verdictRig(r *harness.Harness, t *testing.T, want harness.Verdict, in harness.Run) {
	t.Helper()
	var got harness.Outcome
	var err error
	r.Netns.Do(func() { got, err = r.Run(in) })
	if err != nil || got.Verdict != want {
		t.Errorf("verdict %s, expected %s: %v\n%s", got.Verdict, want, err, fixtures.Layers(in.In))
	}
}

// What kube-proxy translates in the stack comes to from_wire with the Service's address, and to to_pod with the pod's: a source that no wire
// brings is dropped there, and what was decided about it by the tunnel is not held for the wire.
func TestToPodInvalidSource(t *testing.T) {
	for _, cfg := range []config.Datapath{{StackServices: true}, {EBPFRouting: true, StackServices: true}} {
		r := harness.NewPolicy(t, cfg)
		uplink := fwd.Uplink{IPv4: fixtures.NodeA.V4, IPv6: fixtures.NodeA.V6, MAC: fixtures.NodeA.Mac, MTU: 1500}
		if _, err := r.D.Uplinks.Sync(map[int]fwd.Uplink{r.Netns.Devices["eth0"]: uplink}); err != nil {
			t.Fatal(err)
		}
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			brought := func(by string, src fixtures.Member) harness.Run {
				in := harness.StackDelivers(transport(fixtures.ToPod().Ip(src.Addr(family), fixtures.PodA.Addr(family))))
				in.Ingress = by
				return in
			}
			invalid := uint32(bpf.DropReasonDROP_INVALID_SOURCE)
			r.Check(t, []harness.PacketCase{
				harness.Passes(name+" of a tunnelled node's pod, by the tunnel", brought("tunnel", fixtures.PodT)),
				harness.Drops(name+" of a tunnelled node's pod, by the wire", brought("eth0", fixtures.PodT), invalid),
				harness.Passes(name+" of a tunnelled node's pod, by the tunnel again", brought("tunnel", fixtures.PodT)),
				harness.Passes(name+" of a tunnelled node's pod, by some other device", brought("blpoda2", fixtures.PodT)),
				harness.Passes(name+" of a tunnelled node's pod, as the node itself sends it", brought("", fixtures.PodT)),
				harness.Drops(name+" of a pod here, by the wire", brought("eth0", fixtures.PodA2), invalid),
				harness.Drops(name+" of a pod here, by some other device", brought("tunnel", fixtures.PodA2), invalid),
				harness.Passes(name+" of an address of this node's range that is no pod's, by some other device", brought("tunnel", fixtures.NoPod)),
				harness.Passes(name+" of a pod here, by its device", brought("blpoda2", fixtures.PodA2)),
				harness.Passes(name+" of a tunnelled node, by the wire", brought("eth0", fixtures.NodeT)),
				harness.Passes(name+" that the stack has masqueraded", brought("eth0", fixtures.NodeA)),
				harness.Passes(name+" of an external host, by the wire", brought("eth0", fixtures.External)),
			})
		})
	}
}

// ICMP errors about a translated packet come from a host that has seen it: no router on the wire reports packets of a
// tunnel, which ends at the reporting node, or packets between two local pods.
func TestWhoMayReport(t *testing.T) {
	forged := uint32(bpf.DropReasonDROP_FORGED_ERROR)
	r := harness.NewServices(t, config.Datapath{})
	for i, family := range fixtures.Families {
		kind, code := []byte{3, 1}[i], []byte{1, 4}[i] // host unreachable, port unreachable
		f := fixtures.FlowOf(family)
		report := func(of fixtures.Member, to netip.Addr, about fixtures.Packet) harness.Run {
			return harness.WireBrings(fixtures.Quoting(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), of.Addr(family), to, kind, code, 0, about, 500))
		}
		for _, c := range []struct {
			name    string
			backend fixtures.Member
			of      map[fixtures.Member]bool
		}{
			{"to a pod behind a tunnel", fixtures.PodT, map[fixtures.Member]bool{fixtures.NodeT: true, fixtures.NodeB: false, fixtures.External: false}},
			{"to a pod on the link", fixtures.PodB, map[fixtures.Member]bool{fixtures.NodeB: true, fixtures.NodeT: true, fixtures.External: true}},
		} {
			f.Backend = netip.AddrPortFrom(c.backend.Addr(family), 8080)
			r.EnterWith(t, f, fixtures.ProtoUDP, 0)
			sent := fixtures.Eth(fwd.MAC{}, fwd.MAC{}).Ip(f.Node.Addr(), f.Backend.Addr()).Udp(f.Node.Port(), f.Backend.Port()).Payload("asks")
			for of, may := range c.of {
				in := report(of, f.Node.Addr(), sent)
				if name := fmt.Sprintf("IPv%d %s, by %s", family, c.name, of.Addr(family)); may {
					verdictRig(r, t, harness.VerdictRedirect, in)
				} else {
					r.CheckOne(t, harness.Drops(name, in, forged))
				}
			}
		}
	}
}

// The same of what the stack delivers: an error about a connection of two pods here, through a Service, is of the other pod or of the node itself.
func TestWhoMayReportToStack(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{EBPFRouting: true})
	for i, family := range fixtures.Families {
		kind, code := []byte{3, 1}[i], []byte{1, 4}[i]
		pod, other, frontend := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodA2, Port: 8080}.At(family), harness.End{Member: fixtures.ClusterIP, Port: 80}.At(family)
		there, back := fixtures.ConnectionOf(pod, other, bpf.NatFlagNAT_INITIATOR), fixtures.ConnectionOf(frontend, pod, 0)
		now, err := table.Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		there.Seen, back.Seen = uint64(now), uint64(now)
		for key, value := range map[bpf.Tuple]bpf.NatEntry{bpf.TupleOf(pod, frontend, fixtures.ProtoUDP): there, bpf.TupleOf(other, pod, fixtures.ProtoUDP): back} {
			if err := r.D.Objects.Maps.Nat.Put(key, value); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.D.Objects.Maps.NatPods.Put(bpf.AddressOf(pod.Addr()), uint64(now)); err != nil {
			t.Fatal(err)
		}
		sent := fixtures.Eth(fwd.MAC{}, fwd.MAC{}).Ip(pod.Addr(), other.Addr()).Udp(pod.Port(), other.Port()).Payload("asks")
		for by, from := range map[string]fixtures.Member{"blpoda2": fixtures.PodA2, "": fixtures.NodeA, "eth0": fixtures.NodeB, "tunnel": fixtures.NodeT} {
			in := harness.StackDelivers(fixtures.Quoting(fixtures.ToPod(), from.Addr(family), pod.Addr(), kind, code, 0, sent, 500))
			in.Ingress = by
			if by == "blpoda2" || by == "" {
				verdictRig(r, t, harness.VerdictNext, in)
			} else {
				r.CheckOne(t, harness.Drops(fmt.Sprintf("IPv%d by %q", family, by), in, uint32(bpf.DropReasonDROP_FORGED_ERROR)))
			}
		}
	}
}
