package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/beeline-cni/beeline/lab/result"
)

// Paced is one TCP connection whose sender is held to a rate by the kernel (SO_MAX_PACING_RATE): for CPU time at equal
// throughput. It is no workload of All, because its rate comes from other measurements of the run.
type Paced struct {
	iperfTCP
	// Rate is in Gbit/s.
	Rate float64
}

// PacedName is the name of the workload.
const PacedName = "tcp_paced"

// PacedSend is the size of its sends in bytes: small enough for the rates of slow machines.
const PacedSend = 32 << 10

// NewPaced returns the workload with a rate in Gbit/s.
func NewPaced(rate float64) Paced {
	description := "One TCP connection, sends of 32 KB, held to the same rate for all networks, a tenth of the slowest network's maximum; " +
		"what it costs, not what arrives, tells networks apart."
	return Paced{iperfTCP{newIperf(PacedName, "TCP at an equal rate", "GB", description)}, rate}
}

// Processes is one.
func (Paced) Processes(int) []int { return []int{1} }

// Run makes one sample.
func (w Paced) Run(ctx context.Context, r Request) (Outcome, error) {
	if !(w.Rate > 0) {
		return Outcome{}, errors.New("no rate: no network's maximum is known")
	}
	command, reports, err := w.clients(ctx, r, "--fq-rate", fmt.Sprintf("%.0fK", w.Rate*1e6), "-l", fmt.Sprint(PacedSend))
	if err != nil {
		return Outcome{Command: command}, err
	}
	return Outcome{Command: command, Values: iperfTCPValues(reports), Seconds: iperfLongest(reports)}, nil
}

// AtMTU is a workload on a wire with an MTU, in a run with several.
type AtMTU struct {
	Workload
	MTU int
}

// Info names the workload by the MTU.
func (a AtMTU) Info() result.Workload {
	i := a.Workload.Info()
	i.Of, i.MTU = i.Name, a.MTU
	i.Name = AtMTUName(i.Of, a.MTU)
	i.Title += fmt.Sprintf(", MTU %d", a.MTU)
	i.Description += fmt.Sprintf(" Wire with MTU %d.", a.MTU)
	return i
}

// AtMTUName is the name of a workload on a wire with an MTU.
func AtMTUName(of string, mtu int) string { return fmt.Sprintf("%s_mtu_%d", of, mtu) }
