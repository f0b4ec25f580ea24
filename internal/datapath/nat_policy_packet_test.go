package datapath

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/policy"
)

// Policies are asked before translation remembers anything: a pod that may send nothing, or clients that a pod may not hear, take no place in
// a table, no port and no entry for their pod.
func TestPolicyComesBeforeTranslation(t *testing.T) {
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
		f := flowOf(family)
		f.client = netip.AddrPortFrom(world.addr(family), 41000)

		p.serve(t, frontend, 0, end{podB, 8080}.at(family))
		p.govern(t, podA, policy.Sets{Ingress: policy.Closed, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA2: portsOf8080}))
		p.denies(t, name+" to a Service", podSends(first(fromPod(), pod, frontend)), noEgress)
		p.denies(t, name+" to the world", podSends(first(fromPod(), pod, f.client)), noEgress)
		p.serve(t, f.frontend, 0, end{podA, 8080}.at(family))
		p.denies(t, name+" from a client", wireBrings(first(eth(router, nodeA.mac), f.client, f.frontend)), inClosed)
		p.denies(t, name+" from the world", wireBrings(first(eth(router, nodeA.mac), f.client, end{podA, 8080}.at(family))), inClosed)
		maps := p.d.objects.maps
		for _, m := range []*ebpf.Map{maps.NatPending, maps.Nat, maps.NatPods} {
			if n, err := countEntries(m); err != nil || n != 0 {
				t.Errorf("%s: %s has %d entries: %v", name, m, n, err)
			}
		}
		if err := readAll(maps.PendingSlots, func(index *uint32, s *bpfNatSlot) {
			if s.Key.Protocol != 0 {
				t.Errorf("%s: slot %d is taken by %+v", name, *index, s.Key)
			}
		}); err != nil {
			t.Fatal(err)
		}
		p.govern(t, podA, policy.Sets{}, nil)
	})
}
