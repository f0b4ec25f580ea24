package report

import (
	"fmt"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// nothingInCommon is the caution of a comparison without figures.
const nothingInCommon = "The two runs have no figure in common."

// Compare makes the comparison of run b with run a, figure by figure: B ÷ A of the values, and B ÷ A of the ratios to
// node, which also hold between machines.
//
// The runs are independent, so there are no rounds to pair. The interval of a quotient reaches from b's lower bound ÷ a's
// upper bound to b's upper bound ÷ a's lower bound: it holds at least 95 %.
func Compare(a, b *result.Run) *Document {
	va, vb := newView(a), newView(b)
	d := &Document{Title: "How B differs from A", Key: []string{
		"B ÷ A with an interval of at least 95 %: of the values, and of the ratios to node within each run, which also hold between machines.",
		"~: no difference decided, the interval includes 1 or is missing. ↓: lower is better. " + dash + ": no value.",
	}}
	for _, line := range va.provenance() {
		d.Provenance = append(d.Provenance, "A: "+line)
	}
	for _, line := range vb.provenance() {
		d.Provenance = append(d.Provenance, "B: "+line)
	}
	if machine(a.Environment) != machine(b.Environment) {
		d.Cautions = append(d.Cautions, "A and B ran on different machines or kernels: compare the ratios to node, not the values.")
	}
	if ca, cb := a.Cluster, b.Cluster; ca != nil && cb != nil {
		if ca.CNI != cb.CNI || ca.KubeProxy != cb.KubeProxy {
			d.Cautions = append(d.Cautions, fmt.Sprintf("A is %s with kube-proxy %s, B is %s with kube-proxy %s.", ca.CNI, ca.KubeProxy, cb.CNI, cb.KubeProxy))
		}
		if ca.Client.Name != cb.Client.Name || ca.Server.Name != cb.Server.Name {
			d.Cautions = append(d.Cautions, "A and B have their ends on different nodes.")
		}
	}
	if a.Settings.MTU != b.Settings.MTU {
		d.Cautions = append(d.Cautions, "A and B have different MTUs: throughput depends on the size of packets.")
	}
	s := Section{ID: "figures", Title: "Figures", Notes: []string{"Highlighted: the ratios to node differ."}}
	for _, fa := range va.figures {
		for _, fb := range vb.figures {
			if fa.key == fb.key && fa.work.Metric == fb.work.Metric {
				if t := compareFigures(va.noun(), fa, fb); len(t.Rows) > 0 {
					s.Tables = append(s.Tables, t)
				}
			}
		}
	}
	if len(s.Tables) == 0 {
		d.Cautions = append(d.Cautions, nothingInCommon)
		return d
	}
	d.Sections = []Section{s}
	return d
}

func compareFigures(noun string, fa, fb figure) *Table {
	values := func(title string) string { return better(title, fa.work.Better) }
	t := newTable(Everywhere, fa.work.Title, context(fa.key), noun,
		values("A"), values("B"), values("B ÷ A"), "interval", "ratio A", "ratio B", "B ÷ A of ratios", "interval")
	for _, ra := range fa.rows {
		a, b := ra.summary, fb.row(ra.network).summary
		if a == nil || b == nil {
			continue
		}
		change := quotient(stats.Interval{Median: a.Median, Low: a.Low, High: a.High, N: 1}, stats.Interval{Median: b.Median, Low: b.Low, High: b.High, N: 1})
		ratioA, ratioB, ratios := dash, dash, stats.Interval{}
		if ra.network != stats.Baseline && a.Ratio != nil && b.Ratio != nil {
			ratioA, ratioB, ratios = ratio(a.Ratio), ratio(b.Ratio), quotient(ratioOf(a), ratioOf(b))
		}
		row := t.add(ra.network, fa.quantityOf(a), fb.quantityOf(b), ratioCell(change), interval(change.Low, change.High),
			ratioA, ratioB, ratioCell(ratios), interval(ratios.Low, ratios.High))
		row.Class = ""
		if ratios.N > 0 && !ratios.Undecided() {
			row.Class = "hot"
		}
	}
	return t
}

// quotient is b ÷ a with the widest interval that both intervals allow; without values if a is not positive.
func quotient(a, b stats.Interval) stats.Interval {
	if a.Median <= 0 {
		return stats.Interval{}
	}
	q := stats.Interval{Median: b.Median / a.Median, N: 1}
	if a.Low != nil && a.High != nil && b.Low != nil && b.High != nil && *a.Low > 0 {
		low, high := *b.Low / *a.High, *b.High / *a.Low
		q.Low, q.High = &low, &high
	}
	return q
}
