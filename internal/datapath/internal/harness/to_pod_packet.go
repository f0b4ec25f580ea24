package harness

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

func StackDelivers(p fixtures.Packet) Run {
	return Run{Program: bpf.ProgToPod, Device: "blpoda", In: p.Bytes()}
}
