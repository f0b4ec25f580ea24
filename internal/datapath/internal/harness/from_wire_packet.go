package harness

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

func WireBrings(p fixtures.Packet) Run {
	return Run{Program: bpf.ProgFromWire, Device: "eth0", In: p.Bytes()}
}

// Arrives is a packet from the wire that goes straight into PodA.
func Arrives(name string, p fixtures.Packet) PacketCase {
	return Delivered(name, WireBrings(p), p, fixtures.PodA)
}
