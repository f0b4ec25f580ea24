package round

import (
	"fmt"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Gate is the rule that discards turns and rounds: a turn is all that one network does in a round. The rule is fixed
// before the run and does not depend on the figures that are compared, so it favours no network.
type Gate struct {
	// Steal and Foreign are the largest shares (0…1) of the CPU time of all CPUs that the hypervisor and
	// processes that are not the bench's may take during a turn.
	Steal, Foreign float64
	// Retransmits is the largest share of segments that the baseline's own streams may send again.
	Retransmits float64
}

// DefaultGate is for a machine with nothing else to do.
var DefaultGate = Gate{Steal: 0.02, Foreign: 0.05, Retransmits: 0.01}

// String says the rule in one sentence.
func (g Gate) String() string {
	return fmt.Sprintf("what a network does in a round is discarded, and done again up to %d times, when steal exceeds %.3g %% or foreign load "+
		"%.3g %% of the CPU time of all CPUs; a round is discarded when the baseline's part of it is, or when the baseline's own TCP streams "+
		"send more than %.3g %% of their segments again", turnsAgain, g.Steal*100, g.Foreign*100, g.Retransmits*100)
}

// segment is the payload of a TCP segment at MTU 1500, which is close enough to count storms.
const segment = 1448

// turn returns the part of the rule that a turn broke, empty when it is kept.
func (g Gate) turn(t result.Turn) string {
	if t.Steal > g.Steal {
		return fmt.Sprintf("steal %.1f %% > %.3g %%", t.Steal*100, g.Steal*100)
	}
	if t.Foreign > g.Foreign {
		return fmt.Sprintf("foreign load %.1f %% > %.3g %%", t.Foreign*100, g.Foreign*100)
	}
	return ""
}

// round returns the part of the rule that a round broke as a whole, empty when it is kept: without its baseline it
// compares nothing.
func (g Gate) round(r result.Round, samples []result.Sample) string {
	for _, t := range r.Turns {
		if t.Network == stats.Baseline && !keptTurn(r, t.Network) {
			return t.Discarded + " with " + t.Network
		}
	}
	for _, s := range samples {
		if s.Round != r.Index || s.Discarded != "" || (s.Network != stats.Baseline && s.Network != stats.Again) || s.Values[result.Bytes] <= 0 {
			continue
		}
		if share := s.Values[result.Retransmits] * segment / s.Values[result.Bytes]; share > g.Retransmits {
			return fmt.Sprintf("%s of %s sent %.1f %% of its segments again > %.3g %%", s.Workload, s.Network, share*100, g.Retransmits*100)
		}
	}
	return ""
}
