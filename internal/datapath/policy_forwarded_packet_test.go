package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// What the stack forwards with the node's own address, as kube-proxy does, is not the node's: it is judged by the ipBlocks that the address is in.
func TestPolicyMasqueraded(t *testing.T) {
	const idLink = policy.Identity(5)
	for _, routing := range []bool{true, false} {
		p := newPolicyRig(t, Config{EBPFRouting: routing})
		for _, link := range []netip.Prefix{prefix("172.30.0.0/24"), prefix("fd00:172:30::/64")} {
			p.tables.Blocks[link] = idLink
		}
		eachFamily(t, func(t *testing.T, family int) {
			from := func(port uint16) run {
				return stackDelivers(segmentOf(toPod(), end{nodeA, 40000}.at(family), end{podA, port}.at(family), tcpSYN))
			}
			p.ingress(t, map[policy.Identity]policy.Ports{idLink: portsTCP80, idB: portsEvery})
			p.allows(t, "the port of the block", forwarded(from(80)))
			p.denies(t, "another port", forwarded(from(81)), noIngress)
			p.allows(t, "the node itself", from(82))
			p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
			p.denies(t, "the port of another block", forwarded(from(80)), noIngress)
			p.ingress(t, map[policy.Identity]policy.Ports{policy.IdentityUnknown: portsTCP80, idLink: 0})
			p.denies(t, "what the block may not of what everybody may", forwarded(from(80)), noIngress)

			// A block of this one address, within the other.
			single := netip.PrefixFrom(nodeA.addr(family), nodeA.addr(family).BitLen())
			p.tables.Blocks[single] = idWorld
			p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
			p.allows(t, "the port of the single address", forwarded(from(80)))
			delete(p.tables.Blocks, single)
		})
	}
}

// A pod reaches itself whatever policies say; who only says to be the pod does not.
func TestPolicyToItself(t *testing.T) {
	for _, routing := range []bool{true, false} {
		p := newPolicyRig(t, Config{EBPFRouting: routing})
		p.govern(t, podA, policy.Sets{Ingress: policy.Closed, Egress: policy.Closed}, nil)
		each(func(name string, family int, transport func(packet) packet) {
			itself := func(frame packet) packet { return transport(frame.ip(podA.addr(family), podA.addr(family))) }
			delivered := stackDelivers(itself(toPod()))
			back := delivered
			back.ingress = back.device
			p.allows(t, fmt.Sprintf("%s, ebpf=%t, sent", name, routing), podSends(itself(fromPod())))
			p.allows(t, fmt.Sprintf("%s, ebpf=%t, delivered", name, routing), back)
			for _, by := range []string{"eth0", "blpoda2", "tunnel"} {
				delivered.ingress = by
				p.denies(t, fmt.Sprintf("%s, ebpf=%t, delivered from %s", name, routing, by), delivered, uint32(bpfDropReasonDROP_INVALID_SOURCE))
			}
			if routing {
				p.denies(t, name+" from outside", wireBrings(itself(fromWire())), uint32(bpfDropReasonDROP_INVALID_SOURCE))
			}
		})
	}
}
