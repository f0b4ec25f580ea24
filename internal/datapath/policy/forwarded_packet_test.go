package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// A packet that the stack forwards with the node's address, as kube-proxy does, is not the node's: it is evaluated by
// the ipBlocks of the address.
func TestPolicyMasqueraded(t *testing.T) {
	const idLink = policy.Identity(5)
	for _, routing := range []bool{true, false} {
		p := harness.NewPolicy(t, config.Datapath{EBPFRouting: routing})
		for _, link := range []netip.Prefix{fixtures.Prefix("172.30.0.0/24"), fixtures.Prefix("fd00:172:30::/64")} {
			p.Tables.Blocks[link] = idLink
		}
		harness.EachFamily(t, func(t *testing.T, family int) {
			from := func(port uint16) harness.Run {
				return harness.StackDelivers(harness.SegmentOf(fixtures.ToPod(), harness.End{Member: fixtures.NodeA, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: port}.At(family), fixtures.TcpSYN))
			}
			p.Ingress(t, map[policy.Identity]policy.Ports{idLink: harness.PortsTCP80, harness.IdB: harness.PortsEvery})
			p.Allows(t, "the port of the block", forwarded(from(80)))
			p.Denies(t, "another port", forwarded(from(81)), harness.NoIngress)
			p.Allows(t, "the node itself", from(82))
			p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsTCP80})
			p.Denies(t, "the port of another block", forwarded(from(80)), harness.NoIngress)
			p.Ingress(t, map[policy.Identity]policy.Ports{policy.IdentityUnknown: harness.PortsTCP80, idLink: 0})
			p.Denies(t, "denied to the block, allowed to all", forwarded(from(80)), harness.NoIngress)

			// A block of this address, within the other.
			single := netip.PrefixFrom(fixtures.NodeA.Addr(family), fixtures.NodeA.Addr(family).BitLen())
			p.Tables.Blocks[single] = harness.IdExternal
			p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsTCP80})
			p.Allows(t, "the port of the single address", forwarded(from(80)))
			delete(p.Tables.Blocks, single)
		})
	}
}

// A pod reaches itself whatever policies say; a packet that only has its source address does not.
func TestPolicyToItself(t *testing.T) {
	for _, routing := range []bool{true, false} {
		p := harness.NewPolicy(t, config.Datapath{EBPFRouting: routing})
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: policy.DenyAll, Egress: policy.DenyAll}, nil)
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			itself := func(frame fixtures.Packet) fixtures.Packet {
				return transport(frame.Ip(fixtures.PodA.Addr(family), fixtures.PodA.Addr(family)))
			}
			delivered := harness.StackDelivers(itself(fixtures.ToPod()))
			back := delivered
			back.Ingress = back.Device
			p.Allows(t, fmt.Sprintf("%s, ebpf=%t, sent", name, routing), harness.PodSends(itself(fixtures.FromPod())))
			p.Allows(t, fmt.Sprintf("%s, ebpf=%t, delivered", name, routing), back)
			for _, by := range []string{"eth0", "blpoda2", "tunnel"} {
				delivered.Ingress = by
				p.Denies(t, fmt.Sprintf("%s, ebpf=%t, delivered from %s", name, routing, by), delivered, uint32(bpf.DropReasonDROP_INVALID_SOURCE))
			}
			if routing {
				p.Denies(t, name+" from outside", harness.WireBrings(itself(fixtures.FromWire())), uint32(bpf.DropReasonDROP_INVALID_SOURCE))
			}
		})
	}
}
