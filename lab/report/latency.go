package report

import (
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
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
// Histograms that cannot be merged (bounds and counts of different length) are left out with their row.
func (v *view) percentiles() []percentileRow {
	var rows []percentileRow
	for _, f := range v.figures {
		for _, c := range f.rows {
			merged, err := stats.Merge(v.histograms(f.figureKey, c.contender)...)
			if err != nil || stats.Total(merged) == 0 {
				continue
			}
			r := percentileRow{key: f.figureKey, title: f.Title, contender: c.contender, count: stats.Total(merged)}
			for i, share := range shown {
				r.at[i] = stats.Percentile(merged, share)
			}
			rows = append(rows, r)
		}
	}
	return rows
}

func (v *view) histograms(key figureKey, contender string) []*result.Histogram {
	var list []*result.Histogram
	for _, s := range v.run.Samples {
		if s.Latency != nil && s.Network == contender && v.counts(s) && key == keyOf(s) {
			list = append(list, s.Latency)
		}
	}
	return list
}

// hasTail reports whether there are enough round trips for P99.9 to be more than the longest of them.
func (r percentileRow) hasTail() bool { return r.count >= 1000 }
