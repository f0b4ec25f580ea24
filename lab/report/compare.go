package report

import (
	"bufio"
	"fmt"
	"io"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Compare renders how run b differs from run a, figure by figure: B ÷ A of the values, and B ÷ A of the
// ratios to node, which also means something between machines.
//
// The runs are independent, so there are no rounds to pair: the interval of a quotient reaches from b's lower
// bound ÷ a's upper bound to b's upper bound ÷ a's lower bound. That is wider than it had to be, and so a
// difference that it decides is one.
func Compare(w io.Writer, a, b *result.Run) error {
	out := &terminal{bufio.NewWriter(w)}
	va, vb := newView(a), newView(b)
	for i, v := range []*view{va, vb} {
		for j, l := range provenance(v.run) {
			out.printf("%s  %s", [2]string{[2]string{"A", "B"}[i], " "}[min(j, 1)], l)
		}
	}
	if ma, mb := machine(a.Environment), machine(b.Environment); ma != mb {
		out.printf("A and B ran on different machines or kernels: compare the ratios to node, not the values.")
	}
	out.printf("B ÷ A with an interval of at least 95 %%.   ~ = no difference decided: it includes 1 or is missing.  %s = none.", dash)
	compared := 0
	for _, fa := range va.figures {
		for _, fb := range vb.figures {
			if fa.figureKey == fb.figureKey && fa.Metric == fb.Metric {
				compared += out.compare(fa, fb)
			}
		}
	}
	if compared == 0 {
		out.printf("")
		out.printf("The two runs have no figure in common.")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// compare prints one figure and returns how many contenders both runs have in it.
func (t *terminal) compare(fa, fb figure) int {
	n := 0
	for _, ra := range fa.rows {
		rb := fb.find(ra.contender)
		if ra.summary == nil || rb == nil {
			continue
		}
		if n == 0 {
			t.printf("")
			t.printf("%s · %s%s", fa.Title, fa.heading(), direction(fa))
			t.printf("  %s %11s %11s %7s   %s %17s   %s", pad("", 15), "A", "B", "B ÷ A", pad("interval", 13), "ratio A → B", "B ÷ A of the ratios")
		}
		n++
		a, b := ra.summary, rb.summary
		values := quotient(&a.Median, a.Low, a.High, &b.Median, b.Low, b.High)
		line := fmt.Sprintf("  %s %s %s %s", pad(ra.contender, 15), left(quantity(a.Median, fa.unitOf(a)), 11), left(quantity(b.Median, fb.unitOf(b)), 11), values)
		if ra.contender != baseline && a.Ratio != nil && b.Ratio != nil {
			ratios := quotient(a.Ratio, a.RatioLow, a.RatioHigh, b.Ratio, b.RatioLow, b.RatioHigh)
			line += fmt.Sprintf("   %s → %s %s", left(ratio(a.Ratio), 5), left(ratio(b.Ratio), 5), ratios)
		}
		t.printf("%s", line)
	}
	return n
}

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

// String is 25 characters wide: quotient, mark, interval.
func (c change) String() string {
	if c.N == 0 {
		return left(dash, 7) + pad("", 18)
	}
	sign := " "
	if c.Undecided() {
		sign = "~"
	}
	return fmt.Sprintf("%s %s %s", left(ratio(&c.Median), 7), sign, pad(interval(c.Low, c.High), 14))
}
