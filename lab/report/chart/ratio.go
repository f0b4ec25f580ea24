package chart

import (
	"html/template"
	"math"
)

// Ratio is a chart of ratios to a baseline at 1: one row per network, a dot with its interval.
type Ratio struct {
	Text
	Rows []RatioRow
	// Baseline names the line at 1. Better is "higher", "lower" or empty.
	Baseline, Better string
}

// RatioRow is one dot with its interval.
type RatioRow struct {
	Label string
	// Ratio is nil for a row without a dot; Low and High are nil without an interval.
	Ratio     *float64
	Low, High *float64
	// Value is written at the right end: the ratio, or the reason why there is none.
	Value     string
	Tip       string
	Highlight bool
	Published []Marker
}

// Marker is a published ratio, drawn hollow. Shape picks its form.
type Marker struct {
	Ratio float64
	Shape int
	Tip   string
}

// SVG draws the chart.
func (r Ratio) SVG() template.HTML {
	low, high := 1.0, 1.0
	widen := func(v *float64) {
		if v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
			low, high = min(low, *v), max(high, *v)
		}
	}
	var names []name
	for _, row := range r.Rows {
		names = append(names, name{row.Label, row.Value, row.Highlight})
		for _, v := range []*float64{row.Ratio, row.Low, row.High} {
			widen(v)
		}
		for _, m := range row.Published {
			widen(&m.Ratio)
		}
	}
	margin := (high - low) * 0.04
	f := newFrame(names, rowHeight, func(left, right float64) axis { return linear(low-margin, high+margin, left, right) })
	top, one := 22.0, f.at(1)
	base, better := note{anchorNear(one, f.axis), one, r.Baseline + " = 1"}, r.direction(f.axis, one)
	betterAt := top - 9
	if better.touches(base) {
		top += lineHeight
	}
	f.begin(top, nil)
	f.line("base", one, top-4, one, f.bottom())
	base.draw(&f.canvas, top-9)
	better.draw(&f.canvas, betterAt)
	for i, row := range r.Rows {
		y := f.y(i)
		f.line("guide", f.left, y, f.right, y)
		if row.Low != nil && row.High != nil {
			f.whisker(i, *row.Low, *row.High)
			for _, v := range []float64{*row.Low, *row.High} {
				f.line(f.class(i)+" whisker", f.at(v), y-4, f.at(v), y+4)
			}
		}
		if row.Ratio != nil {
			f.circle(f.class(i)+" dot", f.at(*row.Ratio), y, 4.5, row.Tip)
		}
		for _, m := range row.Published {
			f.hollow(f.at(m.Ratio), y, m.Shape, m.Tip)
		}
	}
	return f.svg(r.Text)
}

// anchorNear keeps a label over position x inside the chart.
func anchorNear(x float64, a axis) string {
	switch {
	case x > a.right-40:
		return "end"
	case x < a.left+40:
		return "start"
	}
	return "middle"
}

// direction shows which way is better, at the end of the scale that is farther from the label of the baseline.
func (r Ratio) direction(a axis, one float64) note {
	text := map[string]string{"higher": "better →", "lower": "← better"}[r.Better]
	if one > (a.left+a.right)/2 {
		return note{"start", a.left, text}
	}
	return note{"end", a.right, text}
}

// note is a text over the scale.
type note struct {
	anchor string
	x      float64
	text   string
}

// ends are the positions of the ends of the text.
func (n note) ends() (left, right float64) {
	w := textWidth(n.text)
	left = map[string]float64{"start": n.x, "middle": n.x - w/2, "end": n.x - w}[n.anchor]
	return left, left + w
}

// touches reports whether two texts at one height overlap or nearly do.
func (n note) touches(other note) bool {
	left, right := n.ends()
	start, end := other.ends()
	const between = 6
	return n.text != "" && other.text != "" && left < end+between && start < right+between
}

func (n note) draw(c *canvas, y float64) {
	if n.text != "" {
		c.text("note", n.anchor, n.x, y, n.text)
	}
}

// Shapes is the number of forms of markers.
const Shapes = 6

// hollow draws a published figure: diamond, square, triangles, octagon, hourglass.
func (c *canvas) hollow(x, y float64, shape int, tip string) {
	points := [Shapes]string{"0,-6.5 6.5,0 0,6.5 -6.5,0", "-5,-5 5,-5 5,5 -5,5", "0,-6 6,5 -6,5", "0,6 6,-5 -6,-5",
		"-2.5,-6 2.5,-6 6,-2.5 6,2.5 2.5,6 -2.5,6 -6,2.5 -6,-2.5", "-5.5,-5.5 5.5,-5.5 -5.5,5.5 5.5,5.5"}[((shape%Shapes)+Shapes)%Shapes]
	c.add(`<polygon class="hollow" transform="translate(%s %s)" points="%s">%s</polygon>`, num(x), num(y), points, hint(tip))
}

// Symbol is a marker by itself, for legends.
func Symbol(shape int) template.HTML {
	return symbol(func(c *canvas) { c.hollow(8, 8, shape, "") })
}
