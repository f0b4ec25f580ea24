package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/report/chart/charttest"
)

func p(v float64) *float64 { return &v }

var text = Text{ID: "x", Title: "title <&>", Desc: `desc "quoted"`}

func dots(values ...float64) (list []Mark) {
	for _, v := range values {
		list = append(list, Mark{At: v})
	}
	return list
}

func ratios(baseline string, list ...Row) string {
	return string(Rows{Text: text, Baseline: baseline, Unit: "better →", Rows: list}.SVG())
}

func rows(unit string, log bool, list ...Row) string {
	return string(Rows{Text: text, Unit: unit, Log: log, Rows: list}.SVG())
}

func percentiles(label string, values ...float64) Row {
	r := Row{Label: label, Marks: dots(values...), Low: &values[0], High: &values[len(values)-1]}
	for i := range r.Marks {
		r.Marks[i].Shape = Dot + Shape(i)
	}
	return r
}

func lined(list ...Line) string {
	return string(Lines{Text: text, X: "Services", Y: "per second", LabelX: plain, LabelY: plain, Lines: list}.SVG())
}

// charts are drawings with difficult content: long and hostile labels, one row, equal values, no values.
func charts() map[string]string {
	long := "a network with quite a long name <&\"'>"
	return map[string]string{
		"ratio": ratios("node",
			Row{Label: "node", Marks: dots(1), Value: "1"},
			Row{Label: long, Low: p(0.44), High: p(0.5), Value: "0.460~", Highlight: true, Marks: []Mark{
				{At: 0.46, Tip: "<tip>"}, {At: 1.3, Shape: Published, Tip: "a&b"}, {At: 0.2, Shape: Published}}},
		),
		"ratio around 1":  ratios("no difference", Row{Label: "a", Marks: dots(1.0004), Low: p(0.9997), High: p(1.0009), Value: "1.000~"}),
		"ratio all equal": ratios("node", Row{Label: "a", Marks: dots(1)}),
		"ratio huge":      ratios("node", Row{Label: "a", Marks: dots(137.5), Value: "137.500"}),
		"ratio of pairs": ratios("the other",
			Row{Label: "beeline-policy ÷ beeline-policy-flows-off", Marks: dots(0.98), Low: p(0.97), High: p(0.99), Value: "0.980", Highlight: true},
			Row{Label: "beeline-blocks-100000 ÷ beeline-blocks-1", Value: "no figure", Highlight: true},
			Row{Label: "ptp ÷ beeline", Marks: dots(0.5), Value: "0.500~"},
		),
		"ratio empty": ratios("node"),
		"samples": rows("Gbit/s", false, Row{Label: long, Value: "48.5 Gbit/s", Marks: []Mark{
			{At: 48, Shape: Sample}, {At: 49, Shape: Discarded, Tip: "<>"}, {At: 48.5, Shape: Median}}}),
		"log":                 rows("", true, Row{Label: "a", Marks: dots(1, 4000)}),
		"one point":           rows("", false, Row{Label: "a", Marks: dots(72013)}),
		"log of zero":         rows("", true, Row{Label: "a", Marks: dots(0, 0)}),
		"empty":               rows("", true),
		"percentiles":         rows("", true, percentiles(long, 14, 15.3, 22.4, 45.5), percentiles("b", 15, 16, 23)),
		"percentiles missing": rows("", true, percentiles("a", 3, 4, 5, 9), Row{Label: "b", Value: "failed"}),
		"percentiles decades": rows("", true, percentiles("a", 3, 40, 5000, 900000)),
		"percentiles equal":   rows("", true, percentiles("a", 14, 14, 14, 14)),
		"lines": lined(
			Line{Label: long, Highlight: true, Points: []Point{{X: 1, Y: 16000, Low: p(15900), High: p(16300), Tip: "<tip>"}, {X: 100, Y: 16100}, {X: 10000, Y: 15990}}},
			Line{Label: "close to it", Points: []Point{{X: 1, Y: 15800}, {X: 10000, Y: 15985}}},
			Line{Label: "falls", Points: []Point{{X: 1, Y: 12000}, {X: 10000, Y: 120}}},
			Line{Label: "falls, too", Points: []Point{{X: 1, Y: 12100}, {X: 10000, Y: 100}}},
			Line{Label: "no points"},
		),
		"lines of one number": lined(Line{Label: "a", Points: []Point{{X: 1, Y: 3}}}),
		"lines empty":         lined(),
		"bars": rows("ns", false, Row{Label: long, Value: "340 ns",
			Parts: []Part{{"from_pod", 158, 0, "<t>"}, {"tiny", 0.3, 1, ""}, {"from_wire", 121, 2, ""}, {"none", 0, 3, ""}}}),
		"bars of zero": rows("", false, Row{Label: "a", Parts: []Part{{Size: 0}}}),
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	for name, svg := range charts() {
		t.Run(name, func(t *testing.T) {
			d := xml.NewDecoder(strings.NewReader(svg))
			title, desc := false, false
			for {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%v in:\n%s", err, svg)
				}
				if e, ok := token.(xml.StartElement); ok {
					title = title || e.Name.Local == "title"
					desc = desc || e.Name.Local == "desc"
					for _, a := range e.Attr {
						if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
							t.Errorf("%s %s=%q", e.Name.Local, a.Name.Local, a.Value)
						}
					}
				}
			}
			if !title || !desc {
				t.Error("a chart needs a title and a description")
			}
		})
	}
}

// A label that is too long for one line takes two before anything of it is left out.
func TestLongLabels(t *testing.T) {
	svg := charts()["ratio of pairs"]
	for _, want := range []string{">beeline-policy<", ">÷ beeline-policy-flows-off<", ">beeline-blocks-100000<", ">÷ beeline-blocks-1<", ">ptp ÷ beeline<", ">no figure<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no text %s", want)
		}
	}
	for label, want := range map[string]int{"short": 1, "two words that are too long for this": 2, strings.Repeat("x", 80): 1, " " + strings.Repeat("x", 80): 1} {
		if got := lines(label, 200); len(got) != want || boldWidth(got[0]) > 200 {
			t.Errorf("%q becomes %q", label, got)
		}
	}
}

// A row without percentiles says so, and has no mark: the three whiskers are those of the other row.
func TestPercentilesThatAreMissing(t *testing.T) {
	svg := charts()["percentiles missing"]
	if !strings.Contains(svg, ">failed<") || strings.Count(svg, "whisker") != 3 {
		t.Errorf("%s", svg)
	}
}

// Nothing is drawn where nothing was measured.
func TestLinesWithAGap(t *testing.T) {
	joined := func(apart bool) int {
		return strings.Count(lined(Line{Label: "a", Points: []Point{{X: 1, Y: 3}, {X: 10, Y: 3}, {X: 1000, Y: 3, Apart: apart}}}), "stroke-dasharray")
	}
	if whole, gap := joined(false), joined(true); whole != 2 || gap != 1 {
		t.Errorf("%d lines join three points, %d where one is missing between them", whole, gap)
	}
}

func TestLabelsDoNotOverlap(t *testing.T) {
	for name, svg := range charts() {
		t.Run(name, func(t *testing.T) {
			problems, err := charttest.Overlaps(svg)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Error(p)
			}
		})
	}
}

func TestAxis(t *testing.T) {
	a := linear(0.47, 1.13, 100, 500)
	if a.low > 0.47 || a.high < 1.13 {
		t.Errorf("axis %v–%v does not hold 0.47–1.13", a.low, a.high)
	}
	if n := len(a.ticks); n < 3 || n > 8 {
		t.Errorf("%d ticks: %v", n, a.ticks)
	}
	if got := a.at(a.low); got != 100 {
		t.Errorf("low end at %v", got)
	}
	if got := a.at(a.high); got != 500 {
		t.Errorf("high end at %v", got)
	}
	if got := a.at(1e9); got != 500 {
		t.Errorf("beyond the end at %v", got)
	}
	l := logarithmic(1, 100, 0, 200)
	if got := l.at(10); math.Abs(got-100) > 0.01 {
		t.Errorf("10 on 1–100 at %v", got)
	}
	if got := l.at(0); got != 0 {
		t.Errorf("0 on a logarithmic axis at %v", got)
	}
	for about, want := range map[float64]float64{0.9: 1, 1: 1, 1.2: 2, 3: 5, 7: 10, 0.03: 0.05} {
		if got := niceStep(about); math.Abs(got-want) > 1e-12 {
			t.Errorf("niceStep(%v) = %v, want %v", about, got, want)
		}
	}
}
