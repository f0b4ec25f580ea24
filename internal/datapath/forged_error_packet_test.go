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

// The host's stack gets ICMP errors from a pod only about packets to that pod: it would lower the path MTU to others by what a pod makes up.
func TestForgedErrorsOfPods(t *testing.T) {
	for name, config := range map[string]Config{
		"ebpf":   {EBPFRouting: true, Masquerade: true},
		"kernel": {Masquerade: true},
	} {
		t.Run(name, func(t *testing.T) {
			var cases []packetCase
			for _, family := range families {
				node, own := nodeA.addr(family), podA.addr(family)
				sent := func(to member) packet { return eth(MAC{}, MAC{}).ip(node, to.addr(family)).udp(4789, 4789) }
				for _, kind := range errorKinds(family) {
					what := fmt.Sprintf("IPv%d type %d code %d", family, kind[0], kind[1])
					about := func(to member, limit int) packet {
						return quoting(fromPod(), own, node, kind[0], kind[1], 1280, sent(to), limit)
					}
					forged := func(how string, p packet) packetCase {
						return drops(what+" "+how, podSends(p), uint32(bpfDropReasonDROP_FORGED_ERROR))
					}
					cases = append(cases,
						passes(what+" about a packet to the pod", podSends(about(podA, 548))),
						forged("about a packet to another node", about(nodeB, 548)),
						forged("about a packet to another pod", about(podA2, 548)),
						forged("that quotes nothing", about(podA, 0)),
						forged("that quotes less than a header", about(podA, 16)),
						forged("in fragments", about(podA, 548).fragment(0, true)),
					)
					if family == 6 {
						cases = append(cases, forged("behind options", about(nodeB, 548).extend(protoDstOptions)),
							passes(what+" about a packet to the pod, behind options", podSends(about(podA, 548).extend(protoDstOptions))))
					}
				}
				cases = append(cases, passes(fmt.Sprintf("IPv%d echo request", family), podSends(fromPod().ip(own, node).echo())),
					passes(fmt.Sprintf("IPv%d TCP", family), podSends(fromPod().ip(own, node).tcp(1, 2))))
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
