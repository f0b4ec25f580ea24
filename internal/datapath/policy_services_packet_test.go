package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// The Service that pods use in these tests.
var frontendOfPods = end{clusterIP, 80}

// Policies know a Service's backend, wherever it is, and its answers need no rule.
func TestPolicyBehindService(t *testing.T) {
	p := newPolicyRig(t, Config{Services: true})
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		first := func(frame packet, from, to netip.AddrPort) packet {
			out := transport(frame, from, to)
			if protocol == protoTCP {
				out = out.segment(tcpSYN, 1, 1)
			}
			return out
		}
		pod, frontend := end{podA, 40000}.at(family), frontendOfPods.at(family)
		onlyTo := func(id policy.Identity) {
			p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{id: portsOf8080}))
		}
		asks, goesOn := podSends(first(fromPod(), pod, frontend)), podSends(transport(fromPod(), pod, frontend))

		backend := end{podB, 8080}.at(family)
		p.serve(t, frontend, 0, backend)
		answer := wireBrings(transport(fromWire(), backend, pod))
		onlyTo(idA2)
		p.denies(t, name+" to a backend elsewhere", asks, noEgress)
		onlyTo(idB)
		p.allows(t, name+" to a backend elsewhere, allowed", asks)
		for range 3 {
			p.allows(t, name+": its answer", answer)
			p.allows(t, name+" goes on", goesOn)
		}
		onlyTo(idA2)
		p.denies(t, name+" to a backend elsewhere, revoked", goesOn, noEgress)
		p.denies(t, name+": its answer, revoked", answer, noEgress)

		// The backend is here, and has something to say as well.
		pod = end{podA, 40002}.at(family)
		asks, goesOn = podSends(first(fromPod(), pod, frontend)), podSends(transport(fromPod(), pod, frontend))
		backend = end{podA2, 8080}.at(family)
		p.serve(t, frontend, 0, backend)
		answer = pod2Sends(transport(fromPod(), backend, pod))
		p.govern(t, podA2, policy.Sets{Ingress: rulesHere}, inSet(rulesHere, map[policy.Identity]policy.Ports{idA: 0}))
		p.denies(t, name+" to a backend here", asks, noIngress)
		p.govern(t, podA2, policy.Sets{Ingress: rulesHere, Egress: rulesHere}, inSet(rulesHere, map[policy.Identity]policy.Ports{idA: portsOf8080}))
		p.allows(t, name+" to a backend here, allowed", asks)
		for range 3 {
			p.allows(t, name+": its answer here", answer)
			p.allows(t, name+" goes on here", goesOn)
		}
		delete(p.tables.Pods, podA2.v4)
		delete(p.tables.Pods, podA2.v6)

		// The pod itself, and its own node.
		p.govern(t, podA, policy.Sets{Ingress: policy.Closed, Egress: policy.Closed}, nil)
		backend = end{podA, 8080}.at(family)
		p.serve(t, frontend, 0, backend)
		pod = end{podA, 40003}.at(family)
		p.allows(t, name+" to itself", podSends(first(fromPod(), pod, frontend)))
		var seen bpfNatEntry // by whom the pod thinks it is asked
		if err := p.d.objects.maps.NatPending.Lookup(tupleOf(pod, frontend, protocol), &seen); err != nil {
			t.Fatal(err)
		}
		asker := netip.AddrPortFrom(seen.Source.addr(), swap16(seen.SourcePort))
		p.allows(t, name+": its answer to itself", podSends(transport(fromPod(), backend, asker)))
		p.serve(t, frontend, 0, end{nodeA, 8080}.at(family))
		p.allows(t, name+" to its node", podSends(first(fromPod(), end{podA, 40004}.at(family), frontend)))
		p.serve(t, frontend, 0, end{podA2, 8080}.at(family))
		p.denies(t, name+" closed", podSends(first(fromPod(), end{podA, 40005}.at(family), frontend)), outClosed)
	})
}

// Clients of a NodePort are judged by their own address where the backend's node is the one that they have reached.
func TestPolicyNodePort(t *testing.T) {
	for _, stack := range []bool{false, true} {
		p := newPolicyRig(t, Config{Services: true})
		p.throughStack(t, podA, stack)
		eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
			f, backend := flowOf(family), end{podA, 8080}.at(family)
			p.serve(t, f.frontend, 0, backend)
			first := func(frame packet, from, to netip.AddrPort) packet {
				out := transport(frame, from, to)
				if protocol == protoTCP {
					out = out.segment(tcpSYN, 1, 1)
				}
				return out
			}
			// What the stack has on the way is judged where it delivers.
			arrives := func(p packet) run {
				if stack {
					return forwarded(stackDelivers(p.ip(f.client.Addr(), backend.Addr())))
				}
				return wireBrings(p)
			}
			to := f.frontend
			if stack {
				to = backend
			}
			onlyFrom := func(id policy.Identity) {
				p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{id: portsOf8080}))
			}
			onlyFrom(idB)
			p.allows(t, name+" at the uplink, of what the stack has", wireBrings(first(eth(router, nodeA.mac), netip.AddrPortFrom(podFar.addr(family), 1), end{nodeA, 1}.at(family))))
			p.denies(t, name+" from a client", arrives(first(eth(router, nodeA.mac), f.client, to)), noIngress)
			onlyFrom(idWorld)
			p.allows(t, name+" from a client, allowed", arrives(first(eth(router, nodeA.mac), f.client, to)))
			for range 3 {
				p.allows(t, name+": goes on", arrives(transport(eth(router, nodeA.mac), f.client, to)))
			}
			onlyFrom(idB)
			p.denies(t, name+" from a client, revoked", arrives(transport(eth(router, nodeA.mac), f.client, to)), noIngress)
		})
	}
}

// Errors about translated packets are as good as those packets, and fragments go the way of the first.
func TestPolicyBehindServiceUnusual(t *testing.T) {
	p := newPolicyRig(t, Config{Services: true})
	eachFamily(t, func(t *testing.T, family int) {
		pod, frontend, backend := end{podA, 40000}.at(family), frontendOfPods.at(family), end{podB, 8080}.at(family)
		p.serve(t, frontend, 0, backend)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsOf8080}))
		whole := datagram(fromPod(), pod, frontend).payload("sixteen bytes at least, and more")
		p.allows(t, "the first piece", podSends(whole.fragment(0, true)))
		p.allows(t, "the last piece", podSends(whole.fragment(16, false)))
		kind, code := byte(3), byte(3)
		if family == 6 {
			kind, code = 1, 4
		}
		none := eth(MAC{}, MAC{})
		about := func(quoted packet) run {
			return wireBrings(quoting(fromWire(), podB.addr(family), quoted.src, kind, code, 0, quoted, 500))
		}
		sent := datagram(none, pod, backend)
		p.allows(t, "an error about it", about(sent))
		p.denies(t, "an error about another one", about(datagram(none, end{podA, 40009}.at(family), end{podB, 8081}.at(family))), noIngress)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA2: portsOf8080}))
		p.denies(t, "the first piece, revoked", podSends(whole.fragment(0, true)), noEgress)
		p.denies(t, "the last piece, revoked", podSends(whole.fragment(16, false)), noEgress)
		p.denies(t, "an error about it, revoked", about(sent), noEgress)
	})
}

// An answer that the stack delivers belongs to the session of its question, also where the Service has changed the pod's port: another
// Service with the same backend was asked from that port before.
func TestPolicyAnswersOfChangedPorts(t *testing.T) {
	p := newPolicyRig(t, Config{Services: true})
	p.throughStack(t, podA, true)
	kind, code := byte(3), byte(3)
	eachFamily(t, func(t *testing.T, family int) {
		if family == 6 {
			kind, code = 1, 4
		}
		pod, backend := end{podA, 40000}.at(family), end{podB, 8080}.at(family)
		one, other := frontendOfPods.at(family), end{clusterIP, 81}.at(family)
		p.serve(t, one, 0, backend)
		p.serve(t, other, 0, backend)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsOf8080}))
		answers := func(port uint16) run {
			return forwarded(stackDelivers(datagram(toPod(), backend, netip.AddrPortFrom(pod.Addr(), port))))
		}
		p.allows(t, "a question", podSends(datagram(fromPod(), pod, one)))
		for range 3 {
			p.allows(t, "its answer", answers(pod.Port()))
		}
		p.allows(t, "another question", podSends(datagram(fromPod(), pod, other)))
		var changed bpfNatEntry
		if err := p.d.objects.maps.NatPending.Lookup(tupleOf(pod, other, protoUDP), &changed); err != nil {
			t.Fatal(err)
		}
		port := swap16(changed.SourcePort)
		if port == pod.Port() {
			t.Fatal("the other question keeps its port")
		}
		sent := datagram(eth(MAC{}, MAC{}), netip.AddrPortFrom(pod.Addr(), port), backend)
		p.allows(t, "an error about it", forwarded(stackDelivers(quoting(toPod(), podB.addr(family), pod.Addr(), kind, code, 0, sent, 500))))
		for range 3 {
			p.allows(t, "its answer", answers(port))
		}
		p.denies(t, "an answer to nothing", answers(port-1), noIngress)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{})
		p.denies(t, "an answer, revoked", answers(pod.Port()), noEgress)
		p.denies(t, "an answer of a changed port, revoked", answers(port), noEgress)
	})
}

// What policies drop is told of with the addresses that they know: those of the pods, not of the Service in between.
func TestPolicyTellsOfBackends(t *testing.T) {
	p := newPolicyRig(t, Config{Services: true, Flows: FlowsPolicy})
	reader := p.watch(t)
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		first := func(frame packet, from, to netip.AddrPort) packet {
			out := transport(frame, from, to)
			if protocol == protoTCP {
				out = out.segment(tcpSYN, 1, 1)
			}
			return out
		}
		tellsOf := func(what string, in run, reason uint32, want flow.Event) {
			t.Helper()
			told(t, reader)
			p.denies(t, name+": "+what, in, reason)
			want.Kind, want.Reason, want.Program, want.Device = flow.Dropped, DropReason(reason).String(), in.program, p.stage.devices[deviceAt(in)]
			want.Packets, want.Bytes = [2]uint64{1}, [2]uint64{uint64(len(in.in))}
			if diff := cmp.Diff([]flow.Event{want}, told(t, reader), ignoreMeaning); diff != "" {
				t.Errorf("%s: %s (-expected +got):\n%s", name, what, diff)
			}
		}
		tells := func(what string, in run, reason uint32, from, to netip.AddrPort, source, destination policy.Identity) {
			t.Helper()
			want := flow.Event{Protocol: protocol, Source: from, Destination: to, SourceIdentity: source, DestinationIdentity: destination}
			if protocol == protoTCP {
				want.TCPFlags = tcpSYN
			}
			tellsOf(what, in, reason, want)
		}
		pod, frontend, backend := end{podA, 41000}.at(family), frontendOfPods.at(family), end{podB, 8080}.at(family)
		p.serve(t, frontend, 0, backend)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{})
		tells("a pod at a Service", podSends(first(fromPod(), pod, frontend)), noEgress, pod, backend, idA, idB)

		f := flowOf(family)
		backend = end{podA, 8080}.at(family)
		p.serve(t, f.frontend, 0, backend)
		tells("the world at a NodePort", wireBrings(first(eth(router, nodeA.mac), f.client, f.frontend)), noIngress, f.client, backend, idWorld, idA)
		straight := end{podA, 9}.at(family)
		tells("what is not translated", pod2Sends(first(fromPod(), end{podA2, 9}.at(family), straight)), noIngress, end{podA2, 9}.at(family), straight, idA2, idA)

		p.govern(t, podA, policy.Sets{Ingress: rules}, inSet(rules, map[policy.Identity]policy.Ports{idWorld: portsOf8080}))
		p.allows(t, name+" at the NodePort, allowed", wireBrings(first(eth(router, nodeA.mac), f.client, f.frontend)))
		p.govern(t, podA, policy.Sets{Ingress: rules}, map[policy.Peer]policy.Ports{})
		// One for each protocol: the drops would be alike.
		hop, kind, protocolOfErrors := netip.AddrFrom4([4]byte{172, 30, 9, protocol}), byte(3), uint8(protoICMP)
		if family == 6 {
			hop, kind, protocolOfErrors = addr(fmt.Sprintf("fd00:172:30::9:%x", protocol)), 1, protoICMPv6
		}
		answered := transport(eth(MAC{}, MAC{}), f.frontend, f.client)
		tellsOf("a router that an answer has met", wireBrings(quoting(eth(router, nodeA.mac), hop, f.frontend.Addr(), kind, 1, 0, answered, 500)), noIngress, flow.Event{
			Protocol: protocolOfErrors, Source: netip.AddrPortFrom(hop, 0), Destination: netip.AddrPortFrom(backend.Addr(), 0),
			DestinationIdentity: idA,
		})
		delete(p.tables.Pods, podA.v4)
		delete(p.tables.Pods, podA.v6)
	})
}

// deviceAt is where a packet is.
func deviceAt(in run) string {
	if in.device == "" {
		return "eth0"
	}
	return in.device
}
