package datapath_test

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// BenchmarkPrograms measures one packet in one program, for each journey. ns/packet is the kernel's measurement of
// many runs in a row (the median of such rows). Everything is then in the CPU cache, so it is a lower bound that is
// good for comparing versions. It includes the fixed cost of running a program; to_wire/nothing-to-do, which returns
// at once, shows that cost. ns/op is ns/packet plus the system calls.
//
// Every run gets the packet as the previous run left it, with a lower TTL. Packets therefore start with the highest
// TTL, and a measurement repeats in pieces short enough not to use it up.
func BenchmarkPrograms(b *testing.B) {
	ebpfRouting, plain := config.Datapath{EBPFRouting: true, Masquerade: true}, config.Datapath{EBPFRouting: true}
	kubeProxy := config.Datapath{EBPFRouting: true, Masquerade: true, StackServices: true}
	for _, family := range []struct {
		name string
		n    int
	}{{"IPv4", 4}, {"IPv6", 6}} {
		ip := func(p fixtures.Packet, src, dst fixtures.Member) fixtures.Packet {
			return p.Ip(src.Addr(family.n), dst.Addr(family.n)).Ttl(255).Tcp(31337, 80).Payload("hi")
		}
		for _, c := range []struct {
			name string
			cfg  config.Datapath
			harness.Run
			verdict harness.Verdict
		}{
			{"from_pod/to=pod-here", ebpfRouting, harness.PodSends(ip(fixtures.FromPod(), fixtures.PodA, fixtures.PodA2)), harness.VerdictRedirect},
			{"from_pod/to=pod-remote", ebpfRouting, harness.PodSends(ip(fixtures.FromPod(), fixtures.PodA, fixtures.PodB)), harness.VerdictRedirect},
			{"from_pod/to=pod-remote,beside-kube-proxy", kubeProxy, harness.PodSends(ip(fixtures.FromPod(), fixtures.PodA, fixtures.PodB)), harness.VerdictRedirect},
			{"from_pod/to=pod-remote-unresolved", ebpfRouting, harness.PodSends(ip(fixtures.FromPod(), fixtures.PodA, fixtures.PodC)), harness.VerdictRedirect},
			{"from_pod/to=world", ebpfRouting, harness.PodSends(ip(fixtures.FromPod(), fixtures.PodA, fixtures.External)), harness.VerdictNext},
			{"from_pod/spoofed", ebpfRouting, harness.PodSends(ip(fixtures.FromPod(), fixtures.PodB, fixtures.PodA2)), harness.VerdictDrop},
			{"from_pod/kernel-routing", config.Datapath{Masquerade: true}, harness.PodSends(ip(fixtures.FromPod(), fixtures.PodA, fixtures.PodB)), harness.VerdictNext},
			{"from_wire/from=pod-remote", ebpfRouting, harness.WireBrings(ip(fixtures.FromWire(), fixtures.PodB, fixtures.PodA)), harness.VerdictRedirect},
			{"from_wire/from=pod-remote,beside-kube-proxy", kubeProxy, harness.WireBrings(ip(fixtures.FromWire(), fixtures.PodB, fixtures.PodA)), harness.VerdictRedirect},
			{"from_wire/from=pod-remote,without-source-lookup", plain, harness.WireBrings(ip(fixtures.FromWire(), fixtures.PodB, fixtures.PodA)), harness.VerdictRedirect},
			{"from_wire/to=node", ebpfRouting, harness.WireBrings(ip(fixtures.FromWire(), fixtures.PodB, fixtures.NodeA)), harness.VerdictNext},
			{"from_wire/to=node,without-source-lookup", plain, harness.WireBrings(ip(fixtures.FromWire(), fixtures.PodB, fixtures.NodeA)), harness.VerdictNext},
			{"to_wire/nothing-to-do", plain, harness.StackSends(ip(fixtures.ToWire(), fixtures.NodeA, fixtures.External)), harness.VerdictNext},
			{"to_wire/masqueraded", ebpfRouting, harness.StackSends(ip(fixtures.ToWire(), fixtures.NodeA, fixtures.External)), harness.VerdictNext},
			{"to_pod/from=node", config.Datapath{Masquerade: true}, harness.StackDelivers(ip(fixtures.ToPod(), fixtures.NodeA, fixtures.PodA)), harness.VerdictNext},
		} {
			b.Run(c.name+"/"+family.name, func(b *testing.B) {
				harness.New(b, c.cfg).Measure(b, c.Run, c.verdict)
			})
		}
	}
}
