package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	dpflow "github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Policies apply to a Service's backend, local or remote, and its replies need no rule.
func TestPolicyBehindService(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{Services: true})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		first := func(frame fixtures.Packet, from, to netip.AddrPort) fixtures.Packet {
			out := transport(frame, from, to)
			if protocol == fixtures.ProtoTCP {
				out = out.Segment(fixtures.TcpSYN, 1, 1)
			}
			return out
		}
		pod, frontend := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.FrontendOfPods.At(family)
		onlyTo := func(id policy.Identity) {
			p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{id: harness.PortsOf8080}))
		}
		request, next := harness.PodSends(first(fixtures.FromPod(), pod, frontend)), harness.PodSends(transport(fixtures.FromPod(), pod, frontend))

		backend := harness.End{Member: fixtures.PodB, Port: 8080}.At(family)
		p.Serve(t, frontend, 0, backend)
		reply := harness.WireBrings(transport(fixtures.FromWire(), backend, pod))
		onlyTo(harness.IdA2)
		p.Denies(t, name+" to a remote backend", request, harness.NoEgress)
		onlyTo(harness.IdB)
		p.Allows(t, name+" to a remote backend, allowed", request)
		for range 3 {
			p.Allows(t, name+": its reply", reply)
			p.Allows(t, name+" continues", next)
		}
		onlyTo(harness.IdA2)
		p.Denies(t, name+" to a remote backend, revoked", next, harness.NoEgress)
		p.Denies(t, name+": its reply, revoked", reply, harness.NoEgress)

		// The backend is local and isolated, too.
		pod = harness.End{Member: fixtures.PodA, Port: 40002}.At(family)
		request, next = harness.PodSends(first(fixtures.FromPod(), pod, frontend)), harness.PodSends(transport(fixtures.FromPod(), pod, frontend))
		backend = harness.End{Member: fixtures.PodA2, Port: 8080}.At(family)
		p.Serve(t, frontend, 0, backend)
		reply = harness.Pod2Sends(transport(fixtures.FromPod(), backend, pod))
		p.Govern(t, fixtures.PodA2, policy.Sets{Ingress: harness.RulesHere}, harness.InSet(harness.RulesHere, map[policy.Identity]policy.Ports{harness.IdA: 0}))
		p.Denies(t, name+" to a local backend", request, harness.NoIngress)
		p.Govern(t, fixtures.PodA2, policy.Sets{Ingress: harness.RulesHere, Egress: harness.RulesHere}, harness.InSet(harness.RulesHere, map[policy.Identity]policy.Ports{harness.IdA: harness.PortsOf8080}))
		p.Allows(t, name+" to a local backend, allowed", request)
		for range 3 {
			p.Allows(t, name+": its reply here", reply)
			p.Allows(t, name+" continues, local", next)
		}
		delete(p.Tables.Pods, fixtures.PodA2.V4)
		delete(p.Tables.Pods, fixtures.PodA2.V6)

		// The backend is the pod itself, then its own node.
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: policy.DenyAll, Egress: policy.DenyAll}, nil)
		backend = harness.End{Member: fixtures.PodA, Port: 8080}.At(family)
		p.Serve(t, frontend, 0, backend)
		pod = harness.End{Member: fixtures.PodA, Port: 40003}.At(family)
		p.Allows(t, name+" to itself", harness.PodSends(first(fixtures.FromPod(), pod, frontend)))
		var seen bpf.NatEntry // has the client address that the pod sees
		if err := p.D.Objects.Maps.NatPending.Lookup(bpf.TupleOf(pod, frontend, protocol), &seen); err != nil {
			t.Fatal(err)
		}
		asker := netip.AddrPortFrom(seen.Source.Addr(), bpf.NetworkOrder(seen.SourcePort))
		p.Allows(t, name+": its reply to itself", harness.PodSends(transport(fixtures.FromPod(), backend, asker)))
		p.Serve(t, frontend, 0, harness.End{Member: fixtures.NodeA, Port: 8080}.At(family))
		p.Allows(t, name+" to its node", harness.PodSends(first(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: 40004}.At(family), frontend)))
		p.Serve(t, frontend, 0, harness.End{Member: fixtures.PodA2, Port: 8080}.At(family))
		p.Denies(t, name+" closed", harness.PodSends(first(fixtures.FromPod(), harness.End{Member: fixtures.PodA, Port: 40005}.At(family), frontend)), harness.OutClosed)
	})
}

// Clients of a NodePort are evaluated by their own address if the backend is on the node that they have reached.
func TestPolicyNodePort(t *testing.T) {
	for _, stack := range []bool{false, true} {
		p := harness.NewPolicy(t, config.Datapath{Services: true})
		p.ThroughStack(t, fixtures.PodA, stack)
		fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
			f, backend := fixtures.FlowOf(family), harness.End{Member: fixtures.PodA, Port: 8080}.At(family)
			p.Serve(t, f.Frontend, 0, backend)
			first := func(frame fixtures.Packet, from, to netip.AddrPort) fixtures.Packet {
				out := transport(frame, from, to)
				if protocol == fixtures.ProtoTCP {
					out = out.Segment(fixtures.TcpSYN, 1, 1)
				}
				return out
			}
			// Packets through the stack are evaluated where the stack delivers them.
			arrives := func(p fixtures.Packet) harness.Run {
				if stack {
					return forwarded(harness.StackDelivers(p.Ip(f.Client.Addr(), backend.Addr())))
				}
				return harness.WireBrings(p)
			}
			to := f.Frontend
			if stack {
				to = backend
			}
			onlyFrom := func(id policy.Identity) {
				p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{id: harness.PortsOf8080}))
			}
			onlyFrom(harness.IdB)
			p.Allows(t, name+" at the uplink, of what the stack has", harness.WireBrings(first(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), netip.AddrPortFrom(fixtures.PodFar.Addr(family), 1), harness.End{Member: fixtures.NodeA, Port: 1}.At(family))))
			p.Denies(t, name+" from a client", arrives(first(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, to)), harness.NoIngress)
			onlyFrom(harness.IdExternal)
			p.Allows(t, name+" from a client, allowed", arrives(first(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, to)))
			for range 3 {
				p.Allows(t, name+": continues", arrives(transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, to)))
			}
			onlyFrom(harness.IdB)
			p.Denies(t, name+" from a client, revoked", arrives(transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, to)), harness.NoIngress)
		})
	}
}

// ICMP errors about translated packets are allowed as those packets are, and fragments follow the first.
func TestPolicyBehindServiceUnusual(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{Services: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		pod, frontend, backend := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.FrontendOfPods.At(family), harness.End{Member: fixtures.PodB, Port: 8080}.At(family)
		p.Serve(t, frontend, 0, backend)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsOf8080}))
		whole := harness.Datagram(fixtures.FromPod(), pod, frontend).Payload("sixteen bytes at least, and more")
		p.Allows(t, "the first piece", harness.PodSends(whole.Fragment(0, true)))
		p.Allows(t, "the last piece", harness.PodSends(whole.Fragment(16, false)))
		kind, code := byte(3), byte(3)
		if family == 6 {
			kind, code = 1, 4
		}
		none := fixtures.Eth(fwd.MAC{}, fwd.MAC{})
		about := func(quoted fixtures.Packet) harness.Run {
			return harness.WireBrings(fixtures.Quoting(fixtures.FromWire(), fixtures.PodB.Addr(family), quoted.Src, kind, code, 0, quoted, 500))
		}
		sent := harness.Datagram(none, pod, backend)
		p.Allows(t, "an error about it", about(sent))
		p.Denies(t, "an error about another one", about(harness.Datagram(none, harness.End{Member: fixtures.PodA, Port: 40009}.At(family), harness.End{Member: fixtures.PodB, Port: 8081}.At(family))), harness.NoIngress)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdA2: harness.PortsOf8080}))
		p.Denies(t, "the first piece, revoked", harness.PodSends(whole.Fragment(0, true)), harness.NoEgress)
		p.Denies(t, "the last piece, revoked", harness.PodSends(whole.Fragment(16, false)), harness.NoEgress)
		p.Denies(t, "an error about it, revoked", about(sent), harness.NoEgress)
	})
}

// A reply that the stack delivers belongs to the connection of its request, also if the Service has changed the pod's
// port because another Service with the same backend uses it.
func TestPolicyRepliesFromChangedPorts(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{Services: true})
	p.ThroughStack(t, fixtures.PodA, true)
	kind, code := byte(3), byte(3)
	harness.EachFamily(t, func(t *testing.T, family int) {
		if family == 6 {
			kind, code = 1, 4
		}
		pod, backend := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 8080}.At(family)
		one, other := harness.FrontendOfPods.At(family), harness.End{Member: fixtures.ClusterIP, Port: 81}.At(family)
		p.Serve(t, one, 0, backend)
		p.Serve(t, other, 0, backend)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsOf8080}))
		replies := func(port uint16) harness.Run {
			return forwarded(harness.StackDelivers(harness.Datagram(fixtures.ToPod(), backend, netip.AddrPortFrom(pod.Addr(), port))))
		}
		p.Allows(t, "a question", harness.PodSends(harness.Datagram(fixtures.FromPod(), pod, one)))
		for range 3 {
			p.Allows(t, "its reply", replies(pod.Port()))
		}
		p.Allows(t, "another question", harness.PodSends(harness.Datagram(fixtures.FromPod(), pod, other)))
		var changed bpf.NatEntry
		if err := p.D.Objects.Maps.NatPending.Lookup(bpf.TupleOf(pod, other, fixtures.ProtoUDP), &changed); err != nil {
			t.Fatal(err)
		}
		port := bpf.NetworkOrder(changed.SourcePort)
		if port == pod.Port() {
			t.Fatal("the other request keeps its port")
		}
		sent := harness.Datagram(fixtures.Eth(fwd.MAC{}, fwd.MAC{}), netip.AddrPortFrom(pod.Addr(), port), backend)
		p.Allows(t, "an error about it", forwarded(harness.StackDelivers(fixtures.Quoting(fixtures.ToPod(), fixtures.PodB.Addr(family), pod.Addr(), kind, code, 0, sent, 500))))
		for range 3 {
			p.Allows(t, "its reply", replies(port))
		}
		p.Denies(t, "a reply to nothing", replies(port-1), harness.NoIngress)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{})
		p.Denies(t, "a reply, revoked", replies(pod.Port()), harness.NoEgress)
		p.Denies(t, "a reply of a changed port, revoked", replies(port), harness.NoEgress)
	})
}

// Policy drops are reported with the addresses that policies apply to: those of pods, not of the Service.
func TestPolicyReportsBackends(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{Services: true, Flows: config.FlowsPolicy})
	reader := p.Watch(t)
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		first := func(frame fixtures.Packet, from, to netip.AddrPort) fixtures.Packet {
			out := transport(frame, from, to)
			if protocol == fixtures.ProtoTCP {
				out = out.Segment(fixtures.TcpSYN, 1, 1)
			}
			return out
		}
		expectDrop := func(what string, in harness.Run, reason uint32, want flow.Event) {
			t.Helper()
			harness.ReadEvents(t, reader)
			p.Denies(t, name+": "+what, in, reason)
			want.Kind, want.Reason, want.Program, want.Device = flow.KindDropped, dpflow.DropReason(reason).String(), in.Program, p.Netns.Devices[deviceAt(in)]
			want.Packets, want.Bytes = [2]uint64{1}, [2]uint64{uint64(len(in.In))}
			if diff := cmp.Diff([]flow.Event{want}, harness.ReadEvents(t, reader), fixtures.IgnoreMeaning); diff != "" {
				t.Errorf("%s: %s (-expected +got):\n%s", name, what, diff)
			}
		}
		drops := func(what string, in harness.Run, reason uint32, from, to netip.AddrPort, source, destination policy.Identity) {
			t.Helper()
			want := flow.Event{Protocol: protocol, Source: from, Destination: to, SourceIdentity: source, DestinationIdentity: destination}
			if protocol == fixtures.ProtoTCP {
				want.TCPFlags = fixtures.TcpSYN
			}
			expectDrop(what, in, reason, want)
		}
		pod, frontend, backend := harness.End{Member: fixtures.PodA, Port: 41000}.At(family), harness.FrontendOfPods.At(family), harness.End{Member: fixtures.PodB, Port: 8080}.At(family)
		p.Serve(t, frontend, 0, backend)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{})
		drops("a pod at a Service", harness.PodSends(first(fixtures.FromPod(), pod, frontend)), harness.NoEgress, pod, backend, harness.IdA, harness.IdB)

		f := fixtures.FlowOf(family)
		backend = harness.End{Member: fixtures.PodA, Port: 8080}.At(family)
		p.Serve(t, f.Frontend, 0, backend)
		drops("an external client at a NodePort", harness.WireBrings(first(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend)), harness.NoIngress, f.Client, backend, harness.IdExternal, harness.IdA)
		straight := harness.End{Member: fixtures.PodA, Port: 9}.At(family)
		drops("what is not translated", harness.Pod2Sends(first(fixtures.FromPod(), harness.End{Member: fixtures.PodA2, Port: 9}.At(family), straight)), harness.NoIngress, harness.End{Member: fixtures.PodA2, Port: 9}.At(family), straight, harness.IdA2, harness.IdA)

		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsOf8080}))
		p.Allows(t, name+" at the NodePort, allowed", harness.WireBrings(first(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend)))
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules}, map[policy.Peer]policy.Ports{})
		// One for each protocol, since equal drops would be counted together.
		hop, kind, protocolOfErrors := netip.AddrFrom4([4]byte{172, 30, 9, protocol}), byte(3), uint8(fixtures.ProtoICMP)
		if family == 6 {
			hop, kind, protocolOfErrors = fixtures.Addr(fmt.Sprintf("fd00:172:30::9:%x", protocol)), 1, fixtures.ProtoICMPv6
		}
		replied := transport(fixtures.Eth(fwd.MAC{}, fwd.MAC{}), f.Frontend, f.Client)
		expectDrop("a router on the path of a reply", harness.WireBrings(fixtures.Quoting(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), hop, f.Frontend.Addr(), kind, 1, 0, replied, 500)), harness.NoIngress, flow.Event{
			Protocol: protocolOfErrors, Source: netip.AddrPortFrom(hop, 0), Destination: netip.AddrPortFrom(backend.Addr(), 0),
			DestinationIdentity: harness.IdA,
		})
		delete(p.Tables.Pods, fixtures.PodA.V4)
		delete(p.Tables.Pods, fixtures.PodA.V6)
	})
}

// deviceAt is the device of a packet.
func deviceAt(in harness.Run) string {
	if in.Device == "" {
		return "eth0"
	}
	return in.Device
}
