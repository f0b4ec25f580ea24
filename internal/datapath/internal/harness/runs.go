package harness

import (
	"net/netip"
	"testing"

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

func WireBrings(p fixtures.Packet) Run {
	return Run{Program: bpf.ProgFromWire, Device: "eth0", In: p.Bytes()}
}

// Arrives is a packet from the wire that is redirected to PodA.
func Arrives(name string, p fixtures.Packet) PacketCase {
	return Delivered(name, WireBrings(p), p, fixtures.PodA)
}

func StackDelivers(p fixtures.Packet) Run {
	return Run{Program: bpf.ProgToPod, Device: "blpoda", In: p.Bytes()}
}

func StackSends(p fixtures.Packet) Run {
	return Run{Program: bpf.ProgToWire, Device: "eth0", In: p.Bytes()}
}

// ThroughStack says of a pod of the rig whether its packets go through the host's stack.
func (r *Harness) ThroughStack(tb testing.TB, pod fixtures.Member, yes bool) {
	tb.Helper()
	all, err := r.D.Endpoints.All()
	if err != nil {
		tb.Fatal(err)
	}
	for _, a := range []netip.Addr{pod.V4, pod.V6} {
		e := all[a]
		e.ThroughStack = yes
		if err := r.D.Endpoints.Set(a, e); err != nil {
			tb.Fatal(err)
		}
	}
}

func Answered(name string, in Run, out []byte) PacketCase {
	return PacketCase{Name: name, Run: in, Verdict: VerdictRedirect, Out: out}
}
