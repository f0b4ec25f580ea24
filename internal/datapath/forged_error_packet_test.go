package datapath

import (
	"fmt"
	"testing"
)

// errorKinds are the ICMP errors of a family that quote a packet, by type and code.
func errorKinds(family int) [][2]byte {
	if family == 6 {
		return [][2]byte{{1, 0}, {1, 4}, {2, 0}, {3, 0}, {4, 0}, {100, 0}, {127, 0}}
	}
	return [][2]byte{{3, 0}, {3, 1}, {3, 3}, {3, 4}, {4, 0}, {5, 1}, {11, 0}, {12, 0}}
}

// Who gets ICMP errors from a pod gets them only about packets to that pod: a host would lower its path MTU to others by what a pod makes up.
func TestForgedErrorsOfPods(t *testing.T) {
	for name, config := range map[string]Config{
		"ebpf":   {EBPFRouting: true, Masquerade: true},
		"kernel": {Masquerade: true},
	} {
		t.Run(name, func(t *testing.T) {
			var cases []packetCase
			for _, family := range families {
				node := nodeA.addr(family)
				for _, receiver := range []member{nodeA, podA2, podB} {
					cases = append(cases, errorsTo(receiver, family, config.EBPFRouting)...)
				}
				cases = append(cases, passes(fmt.Sprintf("IPv%d echo request", family), podSends(fromPod().ip(podA.addr(family), node).echo())),
					passes(fmt.Sprintf("IPv%d TCP", family), podSends(fromPod().ip(podA.addr(family), node).tcp(1, 2))))
			}
			deep := quoting(fromPod(), podA.v6, nodeA.v6, 2, 0, 1280, eth(MAC{}, MAC{}).ip(nodeA.v6, nodeB.v6).udp(1, 2), 548)
			for range 5 {
				deep = deep.extend(protoDstOptions)
			}
			cases = append(cases, drops("behind more headers than are read", podSends(deep), uint32(bpfDropReasonDROP_UNREADABLE)))
			newRig(t, config).check(t, cases)
		})
	}
}

// errorsTo are ICMP errors that podA sends the node, a pod beside it or one of another node; `straight`: those to pods go past the stack.
func errorsTo(receiver member, family int, straight bool) (cases []packetCase) {
	to := receiver.addr(family)
	sent := func(to member) packet {
		return eth(MAC{}, MAC{}).ip(receiver.addr(family), to.addr(family)).udp(4789, 4789)
	}
	for _, kind := range errorKinds(family) {
		what := fmt.Sprintf("IPv%d type %d code %d to %s", family, kind[0], kind[1], to)
		about := func(to member, limit int) packet {
			return quoting(fromPod(), podA.addr(family), receiver.addr(family), kind[0], kind[1], 1280, sent(to), limit)
		}
		forged := func(how string, p packet) packetCase {
			return drops(what+" "+how, podSends(p), uint32(bpfDropReasonDROP_FORGED_ERROR))
		}
		good := func(how string, p packet) packetCase {
			switch {
			case straight && receiver == podA2:
				return delivered(what+" "+how, podSends(p), p, podA2)
			case straight && receiver == podB:
				return wired(what+" "+how, p)
			}
			return passes(what+" "+how, podSends(p))
		}
		cases = append(cases,
			good("about a packet to the pod", about(podA, 548)),
			forged("about a packet to another node", about(nodeB, 548)),
			forged("about a packet to another pod", about(podC, 548)),
			forged("that quotes nothing", about(podA, 0)),
			forged("that quotes less than a header", about(podA, 16)),
			forged("in fragments", about(podA, 548).fragment(0, true)),
		)
		if family == 6 {
			cases = append(cases, forged("behind options", about(nodeB, 548).extend(protoDstOptions)),
				good("about a packet to the pod, behind options", about(podA, 548).extend(protoDstOptions)))
		}
	}
	return cases
}
