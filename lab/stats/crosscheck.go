package stats

import (
	"math"

	"github.com/beeline-cni/beeline/lab/result"
)

// Tolerance is the largest relative difference of two figures that must agree. The tools run at different times and use
// different system calls, so it is wide: the check finds errors of method (half round trips, wrong units), which are of
// factor two and more.
const Tolerance = 0.15

// CrossCheck compares figures that must agree. A request–response rate is the inverse of the mean round trip, as measured
// by the same tool in the same samples and by another tool.
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
			check := func(what string, trips series) {
				// Within a round, rate × round trip is 1e6 µs/s.
				product := MedianOf(products(own, trips))
				if product.N == 0 || product.Median <= 0 {
					return
				}
				off := product.Median / 1e6
				list = append(list, result.CrossCheck{
					Network: name, Path: k.Path, Check: what + " (" + string(k.Placement) + ")",
					Expected: rate.Median / off, Measured: rate.Median, Agree: math.Abs(off-1) <= Tolerance,
				})
			}
			check("TCP_RR ≈ 1e6 / netperf's mean RTT in µs", own)
			check("TCP_RR ≈ 1e6 / sockperf's mean RTT in µs", t.series[ping][name])
		}
	}
	return list
}

// products are rate × mean round trip, in µs/s, of each round that has both.
func products(rates, trips series) []float64 {
	var list []float64
	for round, a := range rates {
		b, ok := trips[round]
		if !ok {
			continue
		}
		rate, okRate := a.Values[result.Rate]
		trip, okTrip := b.Values[result.RTT]
		if okRate && okTrip {
			list = append(list, rate*trip)
		}
	}
	return list
}
