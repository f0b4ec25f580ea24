package report

import (
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

// secondaryTable is what was measured beside the headline metric of a figure.
type secondaryTable struct {
	Columns []string
	Rows    []secondaryRow
}

type secondaryRow struct {
	Name      string
	Highlight bool
	Cells     []string
}

// perRound ends the names of percentiles that are medians over rounds, for tools without histograms.
const perRound = "_per_round"

// secondary collects the other summaries of a figure: latencies, loss, retransmits. CPU time has a section
// of its own, and so have percentiles of merged histograms.
func (v *view) secondary(f figure) *secondaryTable {
	var metrics []string
	for _, s := range v.run.Summary {
		if f.figureKey != summaryKey(s) || s.Metric == f.Metric || s.Network == again || elsewhere(s.Metric) || slices.Contains(metrics, s.Metric) {
			continue
		}
		metrics = append(metrics, s.Metric)
	}
	if len(metrics) == 0 {
		return nil
	}
	t := &secondaryTable{}
	for _, m := range metrics {
		t.Columns = append(t.Columns, metricTitle(m))
	}
	for _, r := range f.rows {
		row, any := secondaryRow{Name: r.contender, Highlight: r.contender == subject}, false
		for _, m := range metrics {
			cell := dash
			if s := v.summary(f.figureKey, r.contender, m); s != nil {
				cell, any = secondaryCell(s), true
			}
			row.Cells = append(row.Cells, cell)
		}
		if any {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// secondaryCell leaves the zeros behind the point to quantities that are not counted.
func secondaryCell(s *result.Summary) string {
	if s.Metric == result.Retransmits {
		return tickIn("")(s.Median)
	}
	return quantity(s.Median, s.Unit)
}

func summaryKey(s result.Summary) figureKey {
	return figureKey{s.Workload, s.Path, s.Placement, s.Procs}
}

func elsewhere(metric string) bool {
	return strings.HasPrefix(metric, "cpu_") || strings.HasSuffix(metric, result.VersusWire) ||
		slices.Contains([]string{result.RTTP50, result.RTTP90, result.RTTP99, result.RTTP999}, metric)
}

func metricTitle(name string) string {
	name, rounds := strings.CutSuffix(name, perRound)
	shown := map[string]string{
		result.RTT: "mean round trip", result.RTTP50: "P50", result.RTTP90: "P90", result.RTTP99: "P99", result.RTTP999: "P99.9",
		result.Loss: "loss", result.Retransmits: "segments sent again",
	}[name]
	if shown == "" {
		shown = strings.ReplaceAll(name, "_", " ")
	}
	if rounds {
		shown += ", median of rounds"
	}
	return shown
}
