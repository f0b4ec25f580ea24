package fwd_test

import (
	"fmt"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
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
	for name, config := range map[string]config.Datapath{
		"ebpf":   {EBPFRouting: true, Masquerade: true},
		"kernel": {Masquerade: true},
	} {
		t.Run(name, func(t *testing.T) {
			var cases []harness.PacketCase
			for _, family := range fixtures.Families {
				node := fixtures.NodeA.Addr(family)
				for _, receiver := range []fixtures.Member{fixtures.NodeA, fixtures.PodA2, fixtures.PodB} {
					cases = append(cases, errorsTo(receiver, family, config.EBPFRouting)...)
				}
				cases = append(cases, harness.Passes(fmt.Sprintf("IPv%d echo request", family), harness.PodSends(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), node).Echo())),
					harness.Passes(fmt.Sprintf("IPv%d TCP", family), harness.PodSends(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), node).Tcp(1, 2))))
			}
			deep := fixtures.Quoting(fixtures.FromPod(), fixtures.PodA.V6, fixtures.NodeA.V6, 2, 0, 1280, fixtures.Eth(fwd.MAC{}, fwd.MAC{}).Ip(fixtures.NodeA.V6, fixtures.NodeB.V6).Udp(1, 2), 548)
			for range 5 {
				deep = deep.Extend(fixtures.ProtoDstOptions)
			}
			cases = append(cases, harness.Drops("behind more headers than are read", harness.PodSends(deep), uint32(bpf.DropReasonDROP_UNREADABLE)))
			harness.New(t, config).Check(t, cases)
		})
	}
}

// errorsTo are ICMP errors that PodA sends the node, a pod beside it or one of another node; `straight`: those to pods go past the stack.
func errorsTo(receiver fixtures.Member, family int, straight bool) (cases []harness.PacketCase) {
	to := receiver.Addr(family)
	sent := func(to fixtures.Member) fixtures.Packet {
		return fixtures.Eth(fwd.MAC{}, fwd.MAC{}).Ip(receiver.Addr(family), to.Addr(family)).Udp(4789, 4789)
	}
	for _, kind := range errorKinds(family) {
		what := fmt.Sprintf("IPv%d type %d code %d to %s", family, kind[0], kind[1], to)
		about := func(to fixtures.Member, limit int) fixtures.Packet {
			return fixtures.Quoting(fixtures.FromPod(), fixtures.PodA.Addr(family), receiver.Addr(family), kind[0], kind[1], 1280, sent(to), limit)
		}
		forged := func(how string, p fixtures.Packet) harness.PacketCase {
			return harness.Drops(what+" "+how, harness.PodSends(p), uint32(bpf.DropReasonDROP_FORGED_ERROR))
		}
		good := func(how string, p fixtures.Packet) harness.PacketCase {
			switch {
			case straight && receiver == fixtures.PodA2:
				return harness.Delivered(what+" "+how, harness.PodSends(p), p, fixtures.PodA2)
			case straight && receiver == fixtures.PodB:
				return harness.Wired(what+" "+how, p)
			}
			return harness.Passes(what+" "+how, harness.PodSends(p))
		}
		cases = append(cases,
			good("about a packet to the pod", about(fixtures.PodA, 548)),
			forged("about a packet to another node", about(fixtures.NodeB, 548)),
			forged("about a packet to another pod", about(fixtures.PodC, 548)),
			forged("that quotes nothing", about(fixtures.PodA, 0)),
			forged("that quotes less than a header", about(fixtures.PodA, 16)),
			forged("in fragments", about(fixtures.PodA, 548).Fragment(0, true)),
		)
		if family == 6 {
			cases = append(cases, forged("behind options", about(fixtures.NodeB, 548).Extend(fixtures.ProtoDstOptions)),
				good("about a packet to the pod, behind options", about(fixtures.PodA, 548).Extend(fixtures.ProtoDstOptions)))
		}
	}
	return cases
}
