package report

import (
	"slices"
)

// shown are the percentiles of the report.
var shown = [4]float64{0.50, 0.90, 0.99, 0.999}

// percentileRow holds round trips in µs at the shares of shown, from all kept rounds of a contender.
type percentileRow struct {
	key       figureKey
	title     string
	contender string
	at        [4]float64
	count     uint64
}

// percentiles merges the histograms of each contender and figure; percentiles are never averaged.
func (v *view) percentiles() []percentileRow {
	var rows []percentileRow
	for _, f := range v.figures {
		for _, c := range f.rows {
			counts := map[float64]uint64{}
			for _, s := range v.run.Samples {
				if s.Latency == nil || s.Error != "" || s.Contender != c.contender || v.discarded[s.Round] != "" ||
					f.figureKey != (figureKey{s.Workload, s.Path, s.Placement, s.Procs}) {
					continue
				}
				for i, n := range s.Latency.Count {
					if i < len(s.Latency.UpTo) {
						counts[s.Latency.UpTo[i]] += n
					}
				}
			}
			if at, count, ok := percentilesOf(counts); ok {
				rows = append(rows, percentileRow{f.figureKey, f.Title, c.contender, at, count})
			}
		}
	}
	return rows
}

// percentilesOf reads the shares of shown off a histogram, as the upper bound of the bucket they fall in.
func percentilesOf(counts map[float64]uint64) (at [4]float64, total uint64, ok bool) {
	var bounds []float64
	for bound, n := range counts {
		bounds = append(bounds, bound)
		total += n
	}
	if total == 0 {
		return at, 0, false
	}
	slices.Sort(bounds)
	for i, share := range shown {
		var sum uint64
		for _, bound := range bounds {
			sum += counts[bound]
			at[i] = bound
			if float64(sum) >= share*float64(total) {
				break
			}
		}
	}
	return at, total, true
}

// hasTail reports whether the histogram has enough round trips for its P99.9 to be more than its maximum.
func (r percentileRow) hasTail() bool { return r.count >= 1000 }
