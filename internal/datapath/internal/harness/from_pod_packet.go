package harness

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

func PodSends(p fixtures.Packet) Run {
	return Run{Program: bpf.ProgFromPod, Device: "blpoda", In: p.Bytes()}
}

// Wired is a packet of PodA that leaves through the uplink towards node B, with the cached link-layer header.
func Wired(name string, p fixtures.Packet) PacketCase {
	return PacketCase{Name: name, Run: PodSends(p), Verdict: VerdictRedirect,
		Out: p.Macs(fixtures.NodeA.Mac, fixtures.NodeB.Mac).Ttl(p.Hops - 1).Bytes()}
}
