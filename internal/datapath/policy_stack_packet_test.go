package datapath

import (
	"bytes"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// forwarded is a packet that the stack has not made itself, but got from the device by which its source sends.
func forwarded(in run) run {
	in.ingress = "eth0"
	for device, members := range map[string][]member{"blpoda": {podA}, "blpoda2": {podA2}, "tunnel": {podT, podT6}} {
		for _, m := range members {
			if source := in.in[ethLen+12:]; bytes.HasPrefix(source, m.v4.AsSlice()) || bytes.HasPrefix(in.in[ethLen+8:], m.v6.AsSlice()) {
				in.ingress = device
			}
		}
	}
	return in
}

// With kernel routing, and to pods that go through the stack, the sender is judged where the packet leaves it, and the receiver
// where the stack delivers it: one session serves both.
func TestPolicyThroughStack(t *testing.T) {
	for _, routing := range []bool{true, false} {
		p := newPolicyRig(t, Config{EBPFRouting: routing})
		if routing {
			p.throughStack(t, podA, true)
			p.throughStack(t, podA2, true)
		}
		eachFamily(t, func(t *testing.T, family int) {
			from, to := end{podA2, 40000}.at(family), end{podA, 80}.at(family)
			sends := func(flags byte) run { return pod2Sends(segmentOf(fromPod(), from, to, flags)) }
			gets := func(flags byte) run { return forwarded(stackDelivers(segmentOf(toPod(), from, to, flags))) }
			p.govern(t, podA2, policy.Sets{Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA: portsTCP80}))
			p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
			p.allows(t, "SYN at its sender", sends(tcpSYN))
			p.denies(t, "SYN at its receiver", gets(tcpSYN), noIngress)
			p.ingress(t, map[policy.Identity]policy.Ports{idA2: portsTCP80})
			p.allows(t, "SYN at its sender, allowed", sends(tcpSYN))
			p.allows(t, "SYN at its receiver, allowed", gets(tcpSYN))
			p.allows(t, "its answer", podSends(segmentOf(fromPod(), to, from, tcpSYN|tcpACK)))
			for range 3 {
				p.allows(t, "data at its sender", sends(tcpACK))
				p.allows(t, "data at its receiver", gets(tcpACK))
			}
			p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
			for range 2 {
				p.allows(t, "data at its sender, whom nothing forbids it", sends(tcpACK))
				p.denies(t, "data at its receiver, forbidden", gets(tcpACK), noIngress)
			}
			// What leaves a pod here is counted there and not once more.
			if err := p.d.objects.generation.advance(); err != nil {
				t.Fatal(err)
			}
			p.allows(t, "the permits' end", sends(tcpACK))
			for _, s := range p.sessions(t) {
				if s.Source == from && s.Packets[0] != 8 {
					t.Errorf("%d packets are counted, not 8", s.Packets[0])
				}
			}
		})
	}
}

// What the stack gets for its options is judged before, and counted once: where the stack delivers it, unless it was where it left a pod here.
func TestPolicyCountsOptionsOnce(t *testing.T) {
	for _, c := range []struct {
		name     string
		flows    FlowMode
		from     member
		governed bool // the sender, too
		send     func(packet) run
		frame    packet
	}{
		{"from the wire", FlowsOff, podB, false, wireBrings, fromWire()},
		{"from the wire, observed", FlowsAll, podB, false, wireBrings, fromWire()},
		{"from a pod here", FlowsOff, podA2, false, pod2Sends, fromPod()},
		{"from a pod here, observed", FlowsAll, podA2, false, pod2Sends, fromPod()},
		{"from a pod here that policies select", FlowsOff, podA2, true, pod2Sends, fromPod()},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPolicyRig(t, Config{EBPFRouting: true, Flows: c.flows})
			eachFamily(t, func(t *testing.T, family int) {
				p.ingress(t, map[policy.Identity]policy.Ports{idA2: portsUDP, idB: portsUDP})
				if c.governed {
					p.govern(t, podA2, policy.Sets{Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA: portsUDP}))
				}
				from, to := end{c.from, 40000}.at(family), end{podA, 53}.at(family)
				with := func(frame packet) packet {
					frame = frame.ip(from.Addr(), to.Addr())
					if family == 4 {
						return frame.ipOptions(0x94, 4, 0, 0).udp(from.Port(), to.Port()) // router alert
					}
					return frame.extend(protoHopByHop).udp(from.Port(), to.Port())
				}
				const packets = 3
				for range packets {
					p.allows(t, "to the stack", c.send(with(c.frame)))
					p.allows(t, "from the stack", forwarded(stackDelivers(with(toPod()))))
				}
				all := p.sessions(t)
				if len(all) != 1 || all[0].Packets != [2]uint64{packets, 0} {
					t.Errorf("sessions %+v, expected one with %d packets", all, packets)
				}
				p.forget(t)
			})
		})
	}
}
