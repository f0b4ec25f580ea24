package report

import (
	"fmt"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// comparison is how run B differs from run A, figure by figure: B ÷ A of the values, and B ÷ A of the ratios to node,
// which also means something between machines.
//
// The runs are independent, so there are no rounds to pair: the interval of a quotient reaches from b's lower
// bound ÷ a's upper bound to b's upper bound ÷ a's lower bound. That is wider than it had to be, and so a
// difference that it decides is one.
type comparison struct {
	a, b *view
	// notes are what to know before reading.
	notes   []string
	figures []comparedFigure
}

// comparedFigure is one figure that both runs have.
type comparedFigure struct {
	figure
	rows []comparedRow
}

// comparedRow is one contender in a figure; the ratios are those to node, and the baseline has none.
type comparedRow struct {
	contender      string
	a, b           string
	values         change
	ratioA, ratioB *float64
	ratios         change
}

func newComparison(a, b *result.Run) *comparison {
	c := &comparison{a: newView(a), b: newView(b)}
	if machine(a.Environment) != machine(b.Environment) {
		c.notes = append(c.notes, "A and B ran on different machines or kernels: compare the ratios to node, not the values.")
	}
	if ca, cb := a.Cluster, b.Cluster; ca != nil && cb != nil {
		if ca.CNI != cb.CNI || ca.KubeProxy != cb.KubeProxy {
			c.notes = append(c.notes, fmt.Sprintf("A is %s with kube-proxy %s, B is %s with kube-proxy %s.", ca.CNI, ca.KubeProxy, cb.CNI, cb.KubeProxy))
		}
		if ca.Client.Name != cb.Client.Name || ca.Server.Name != cb.Server.Name {
			c.notes = append(c.notes, "A and B have their ends on different nodes.")
		}
	}
	if a.Settings.MTU != b.Settings.MTU {
		c.notes = append(c.notes, "A and B have different MTUs: throughput follows the size of packets.")
	}
	for _, fa := range c.a.figures {
		for _, fb := range c.b.figures {
			if fa.figureKey == fb.figureKey && fa.Metric == fb.Metric {
				if f := compareFigures(fa, fb); len(f.rows) > 0 {
					c.figures = append(c.figures, f)
				}
			}
		}
	}
	return c
}

func compareFigures(fa, fb figure) comparedFigure {
	f := comparedFigure{figure: fa}
	for _, ra := range fa.rows {
		rb := fb.find(ra.contender)
		if ra.summary == nil || rb == nil {
			continue
		}
		a, b := ra.summary, rb.summary
		r := comparedRow{
			contender: ra.contender, a: quantity(a.Median, fa.unitOf(a)), b: quantity(b.Median, fb.unitOf(b)),
			values: quotient(&a.Median, a.Low, a.High, &b.Median, b.Low, b.High),
		}
		if ra.contender != baseline && a.Ratio != nil && b.Ratio != nil {
			r.ratioA, r.ratioB = a.Ratio, b.Ratio
			r.ratios = quotient(a.Ratio, a.RatioLow, a.RatioHigh, b.Ratio, b.RatioLow, b.RatioHigh)
		}
		f.rows = append(f.rows, r)
	}
	return f
}

// nothingInCommon is said where there is no figure to compare.
const nothingInCommon = "The two runs have no figure in common."

// change is one quotient with its interval.
type change struct{ stats.Interval }

func quotient(a, aLow, aHigh, b, bLow, bHigh *float64) change {
	var c change
	if *a <= 0 {
		return c
	}
	c.Median, c.N = *b / *a, 1
	if aLow != nil && aHigh != nil && bLow != nil && bHigh != nil && *aLow > 0 {
		low, high := *bLow / *aHigh, *bHigh / *aLow
		c.Low, c.High = &low, &high
	}
	return c
}

// mark is the character behind a quotient: "~" where no difference was decided.
func (c change) mark() string {
	if c.N > 0 && c.Undecided() {
		return "~"
	}
	return ""
}

// quotient renders the number, or a dash.
func (c change) quotient() string {
	if c.N == 0 {
		return dash
	}
	return ratio(&c.Median)
}

// String is 25 characters wide: quotient, mark, interval.
func (c change) String() string {
	if c.N == 0 {
		return left(dash, 7) + pad("", 18)
	}
	return left(ratio(&c.Median), 7) + " " + pad(c.mark(), 1) + " " + pad(interval(c.Low, c.High), 14)
}
