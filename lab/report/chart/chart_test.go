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

// charts are drawings with difficult content: long and hostile labels, one row, equal values, no values.
func charts() map[string]string {
	long := "a network with quite a long name <&\"'>"
	text := Text{ID: "x", Title: "title <&>", Desc: `desc "quoted"`}
	return map[string]string{
		"ratio": string(Ratio{Text: text, Baseline: "node", Better: "higher", Rows: []RatioRow{
			{Label: "node", Ratio: p(1), Value: "1"},
			{Label: long, Ratio: p(0.46), Low: p(0.44), High: p(0.5), Value: "0.460 ~", Highlight: true, Tip: "<tip>", Published: []Marker{{Ratio: 1.3, Tip: "a&b"}, {Ratio: 0.2, Shape: 9}}},
		}}.SVG()),
		"ratio around 1":  string(Ratio{Text: text, Baseline: "no difference", Rows: []RatioRow{{Label: "a", Ratio: p(1.0004), Low: p(0.9997), High: p(1.0009), Value: "1.000 ~"}}}.SVG()),
		"ratio all equal": string(Ratio{Text: text, Baseline: "node", Better: "lower", Rows: []RatioRow{{Label: "a", Ratio: p(1)}}}.SVG()),
		"ratio huge":      string(Ratio{Text: text, Baseline: "node", Better: "lower", Rows: []RatioRow{{Label: "a", Ratio: p(137.5), Value: "137.500"}}}.SVG()),
		"ratio of pairs": string(Ratio{Text: text, Baseline: "the other", Better: "higher", Rows: []RatioRow{
			{Label: "beeline-policy ÷ beeline-policy-flows-off", Ratio: p(0.98), Low: p(0.97), High: p(0.99), Value: "0.980", Highlight: true},
			{Label: "beeline-blocks-100000 ÷ beeline-blocks-1", Value: "no figure", Highlight: true},
			{Label: "ptp ÷ beeline", Ratio: p(0.5), Value: "0.500 ~"},
		}}.SVG()),
		"ratio empty":         string(Ratio{Text: text}.SVG()),
		"strip":               string(Strip{Text: text, Unit: "Gbit/s", Rows: []StripRow{{Label: long, Value: "48.5 Gbit/s", Ticks: []float64{48.5}, Points: []StripPoint{{Value: 48}, {Value: 49, Discarded: true, Tip: "<>"}}}}}.SVG()),
		"strip log":           string(Strip{Text: text, Log: true, Rows: []StripRow{{Label: "a", Points: []StripPoint{{Value: 1}, {Value: 4000}}}}}.SVG()),
		"strip one point":     string(Strip{Text: text, Rows: []StripRow{{Label: "a", Points: []StripPoint{{Value: 72013}}}}}.SVG()),
		"strip zero":          string(Strip{Text: text, Log: true, Rows: []StripRow{{Label: "a", Points: []StripPoint{{Value: 0}, {Value: 0}}}}}.SVG()),
		"strip empty":         string(Strip{Text: text}.SVG()),
		"percentiles":         string(Percentiles{Text: text, Rows: []PercentileRow{{Label: long, At: [4]float64{14, 15.3, 22.4, 45.5}}, {Label: "b", At: [4]float64{15, 16, 23, 0}}}}.SVG()),
		"percentiles missing": string(Percentiles{Text: text, Rows: []PercentileRow{{Label: "a", At: [4]float64{3, 4, 5, 9}}, {Label: "b", Absent: "failed"}}}.SVG()),
		"percentiles decades": string(Percentiles{Text: text, Rows: []PercentileRow{{Label: "a", At: [4]float64{3, 40, 5000, 900000}}}}.SVG()),
		"percentiles equal":   string(Percentiles{Text: text, Rows: []PercentileRow{{Label: "a", At: [4]float64{14, 14, 14, 14}}}}.SVG()),
		"percentiles empty":   string(Percentiles{Text: text}.SVG()),
		"curve": string(Curve{Text: text, X: "Services", Y: "per second", Lines: []CurveLine{
			{Label: long, Highlight: true, Points: []CurvePoint{{X: 1, Y: 16000, Low: p(15900), High: p(16300), Tip: "<tip>"}, {X: 100, Y: 16100}, {X: 10000, Y: 15990}}},
			{Label: "close to it", Points: []CurvePoint{{X: 1, Y: 15800}, {X: 10000, Y: 15985}}},
			{Label: "falls", Points: []CurvePoint{{X: 1, Y: 12000}, {X: 10000, Y: 120}}},
			{Label: "falls, too", Points: []CurvePoint{{X: 1, Y: 12100}, {X: 10000, Y: 100}}},
			{Label: "no points"},
		}}.SVG()),
		"curve of one number": string(Curve{Text: text, Lines: []CurveLine{{Label: "a", Points: []CurvePoint{{X: 1, Y: 3}}}}}.SVG()),
		"curve empty":         string(Curve{Text: text}.SVG()),
		"stack":               string(Stack{Text: text, Unit: "ns", Rows: []StackRow{{Label: long, Value: "340 ns", Parts: []Part{{"from_pod", 158, 0, "<t>"}, {"tiny", 0.3, 1, ""}, {"from_wire", 121, 2, ""}, {"none", 0, 3, ""}}}}}.SVG()),
		"stack empty":         string(Stack{Text: text}.SVG()),
		"stack zero":          string(Stack{Text: text, Rows: []StackRow{{Label: "a", Parts: []Part{{Size: 0}}}}}.SVG()),
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

// A row without percentiles says so, and has no mark.
func TestPercentilesThatAreMissing(t *testing.T) {
	svg := charts()["percentiles missing"]
	if !strings.Contains(svg, ">failed<") || strings.Count(svg, "whisker") != 1 {
		t.Errorf("%s", svg)
	}
}

// Nothing is drawn where nothing was measured.
func TestCurveWithAGap(t *testing.T) {
	joined := func(apart bool) int {
		svg := string(Curve{Lines: []CurveLine{{Label: "a", Points: []CurvePoint{{X: 1, Y: 3}, {X: 10, Y: 3}, {X: 1000, Y: 3, Apart: apart}}}}}.SVG())
		return strings.Count(svg, "stroke-dasharray")
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
