package harness

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

func StackSends(p fixtures.Packet) Run {
	return Run{Program: bpf.ProgToWire, Device: "eth0", In: p.Bytes()}
}
