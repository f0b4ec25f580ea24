package stats

import (
	"math"

	"github.com/beeline-cni/beeline/lab/result"
)

// Tolerance is how far two tools that must agree may be apart. They run at different times and have
// different system calls around the same round trip, so it is wide: the check is for errors of method
// (half round trips, wrong units, a process that did not run), which are of factor two and more.
const Tolerance = 0.15

// CrossCheck compares figures that must agree. A request–response rate is the inverse of the mean round
// trip: of the one that the same tool measured in the same samples, and of the one that another tool did.
func CrossCheck(run *result.Run) []result.CrossCheck {
	t := newTable(run)
	var list []result.CrossCheck
	for _, k := range t.keys {
		if k.Workload != "tcp_rr" || k.Procs != 1 {
			continue
		}
		ping := k
		ping.Workload = "sockperf_tcp"
		for _, name := range t.names {
			own := t.series[k][name]
			rate := MedianOf(own.values(metric(result.Rate)))
			if rate.N == 0 {
				continue
			}
			check := func(what string, rtt Interval) {
				if rtt.N == 0 || rtt.Median <= 0 {
					return
				}
				expected := 1e6 / rtt.Median
				list = append(list, result.CrossCheck{
					Contender: name, Path: k.Path, What: what + " (" + string(k.Placement) + ")",
					Expected: expected, Measured: rate.Median,
					Agree: math.Abs(rate.Median/expected-1) <= Tolerance,
				})
			}
			check("TCP_RR ≈ 1e6 / netperf's mean RTT in µs", MedianOf(own.values(metric(result.RTT))))
			check("TCP_RR ≈ 1e6 / sockperf's mean RTT in µs", MedianOf(t.series[ping][name].values(metric(result.RTT))))
		}
	}
	return list
}
