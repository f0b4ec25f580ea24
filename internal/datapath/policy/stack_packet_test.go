package policy_test

import (
	"bytes"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// forwarded is a packet that the stack has received from its source's device, not one of its own.
func forwarded(in harness.Run) harness.Run {
	in.Ingress = "eth0"
	for device, members := range map[string][]fixtures.Member{"blpoda": {fixtures.PodA}, "blpoda2": {fixtures.PodA2}, "tunnel": {fixtures.PodT, fixtures.PodT6}} {
		for _, m := range members {
			if source := in.In[fixtures.EthLen+12:]; bytes.HasPrefix(source, m.V4.AsSlice()) || bytes.HasPrefix(in.In[fixtures.EthLen+8:], m.V6.AsSlice()) {
				in.Ingress = device
			}
		}
	}
	return in
}

// With kernel routing, and for pods that the stack serves, the sender is evaluated where the packet leaves it and the
// receiver where the stack delivers it: one conntrack entry serves both.
func TestPolicyThroughStack(t *testing.T) {
	for _, routing := range []bool{true, false} {
		p := harness.NewPolicy(t, config.Datapath{EBPFRouting: routing})
		if routing {
			p.ThroughStack(t, fixtures.PodA, true)
			p.ThroughStack(t, fixtures.PodA2, true)
		}
		harness.EachFamily(t, func(t *testing.T, family int) {
			from, to := harness.End{Member: fixtures.PodA2, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
			sends := func(flags byte) harness.Run {
				return harness.Pod2Sends(harness.SegmentOf(fixtures.FromPod(), from, to, flags))
			}
			gets := func(flags byte) harness.Run {
				return forwarded(harness.StackDelivers(harness.SegmentOf(fixtures.ToPod(), from, to, flags)))
			}
			p.Govern(t, fixtures.PodA2, policy.Sets{Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdA: harness.PortsTCP80}))
			p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
			p.Allows(t, "SYN at its sender", sends(fixtures.TcpSYN))
			p.Denies(t, "SYN at its receiver", gets(fixtures.TcpSYN), harness.NoIngress)
			p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdA2: harness.PortsTCP80})
			p.Allows(t, "SYN at its sender, allowed", sends(fixtures.TcpSYN))
			p.Allows(t, "SYN at its receiver, allowed", gets(fixtures.TcpSYN))
			p.Allows(t, "its reply", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), to, from, fixtures.TcpSYN|fixtures.TcpACK)))
			for range 3 {
				p.Allows(t, "data at its sender", sends(fixtures.TcpACK))
				p.Allows(t, "data at its receiver", gets(fixtures.TcpACK))
			}
			p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
			for range 2 {
				p.Allows(t, "data at its sender, allowed", sends(fixtures.TcpACK))
				p.Denies(t, "data at its receiver, denied", gets(fixtures.TcpACK), harness.NoIngress)
			}
			// A packet that leaves a local pod is counted there, and only there.
			if err := p.D.Objects.Generation.Advance(); err != nil {
				t.Fatal(err)
			}
			p.Allows(t, "the verdict caches' end", sends(fixtures.TcpACK))
			for _, s := range p.Entries(t) {
				if s.Source == from && s.Packets[0] != 8 {
					t.Errorf("%d packets are counted, not 8", s.Packets[0])
				}
			}
		})
	}
}

// A packet that goes to the stack because of IP options is evaluated before and counted once: on delivery, or where
// it left a local pod.
func TestPolicyCountsOptionsOnce(t *testing.T) {
	for _, c := range []struct {
		name     string
		flows    config.FlowMode
		from     fixtures.Member
		selected bool // the sender, too
		send     func(fixtures.Packet) harness.Run
		frame    fixtures.Packet
	}{
		{"from the wire", config.FlowsOff, fixtures.PodB, false, harness.WireBrings, fixtures.FromWire()},
		{"from the wire, observed", config.FlowsAll, fixtures.PodB, false, harness.WireBrings, fixtures.FromWire()},
		{"from a local pod", config.FlowsOff, fixtures.PodA2, false, harness.Pod2Sends, fixtures.FromPod()},
		{"from a local pod, observed", config.FlowsAll, fixtures.PodA2, false, harness.Pod2Sends, fixtures.FromPod()},
		{"from a local pod that policies select", config.FlowsOff, fixtures.PodA2, true, harness.Pod2Sends, fixtures.FromPod()},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: c.flows})
			harness.EachFamily(t, func(t *testing.T, family int) {
				p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdA2: harness.PortsUDP, harness.IdB: harness.PortsUDP})
				if c.selected {
					p.Govern(t, fixtures.PodA2, policy.Sets{Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdA: harness.PortsUDP}))
				}
				from, to := harness.End{Member: c.from, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 53}.At(family)
				with := func(frame fixtures.Packet) fixtures.Packet {
					frame = frame.Ip(from.Addr(), to.Addr())
					if family == 4 {
						return frame.IpOptions(0x94, 4, 0, 0).Udp(from.Port(), to.Port()) // router alert
					}
					return frame.Extend(fixtures.ProtoHopByHop).Udp(from.Port(), to.Port())
				}
				const packets = 3
				for range packets {
					p.Allows(t, "to the stack", c.send(with(c.frame)))
					p.Allows(t, "from the stack", forwarded(harness.StackDelivers(with(fixtures.ToPod()))))
				}
				all := p.Entries(t)
				if len(all) != 1 || all[0].Packets != [2]uint64{packets, 0} {
					t.Errorf("entries %+v, expected one with %d packets", all, packets)
				}
				p.ClearVerdicts(t)
			})
		})
	}
}
