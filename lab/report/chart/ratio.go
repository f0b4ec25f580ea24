package chart

import (
	"html/template"
	"math"
)

// Ratio is a chart of ratios to a baseline at 1: one row for each network, a dot with its interval.
type Ratio struct {
	Text
	Rows []RatioRow
	// Baseline names the line at 1; Better is "higher" or "lower" and says which way is good, "" for neither.
	Baseline, Better string
}

// RatioRow is one dot. Low and High are nil where there is no interval.
type RatioRow struct {
	Label     string
	Ratio     *float64 // nil: no dot, only markers, and Value says why
	Low, High *float64
	Value     string // printed at the right end
	Tip       string
	Highlight bool
	Published []Marker
}

// Marker is a published ratio, drawn hollow; Shape picks its form, the same for one study everywhere.
type Marker struct {
	Ratio float64
	Shape int
	Tip   string
}

const (
	rowHeight = 26
	// tallRow is the height of all rows of a chart where a label takes two lines.
	tallRow = 34
)

// SVG draws the chart.
func (r Ratio) SVG() template.HTML {
	c := &canvas{}
	labels, values := make([]string, len(r.Rows)), 0.0
	low, high := 1.0, 1.0
	widen := func(v *float64) {
		if v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
			low, high = min(low, *v), max(high, *v)
		}
	}
	for i, row := range r.Rows {
		labels[i] = row.Label
		values = max(values, boldWidth(row.Value))
		widen(row.Ratio)
		widen(row.Low)
		widen(row.High)
		for _, m := range row.Published {
			widen(&m.Ratio)
		}
	}
	left := labelWidth(labels)
	margin := (high - low) * 0.04
	a := linear(low-margin, high+margin, left+8, Width-values-16)
	top, one := 22.0, a.at(1)
	base, better := note{anchorNear(one, a), one, r.Baseline + " = 1"}, r.direction(a, one)
	betterAt := top - 9
	if better.touches(base) {
		top += lineHeight
	}
	height := float64(rowHeight)
	for _, l := range labels {
		if len(lines(l, left-4)) > 1 {
			height = tallRow
		}
	}
	bottom := top + height*float64(len(r.Rows))
	a.draw(c, top, bottom, nil)
	c.line("base", one, top-4, one, bottom)
	base.draw(c, top-9)
	better.draw(c, betterAt)
	for i, row := range r.Rows {
		row.draw(c, a, left, top+height*(float64(i)+0.5))
	}
	c.height = bottom + 24
	return c.svg(r.Text)
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

// direction says which way is better, at the end of the scale that is farther from the baseline's label.
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

// ends are where the text begins and ends.
func (n note) ends() (left, right float64) {
	w := textWidth(n.text)
	left = map[string]float64{"start": n.x, "middle": n.x - w/2, "end": n.x - w}[n.anchor]
	return left, left + w
}

// touches says whether two texts at one height would touch.
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

func (row RatioRow) draw(c *canvas, a axis, left, y float64) {
	class := "mark"
	if row.Highlight {
		class = "mark hot"
	}
	c.line("guide", a.left, y, a.right, y)
	label := lines(row.Label, left-4)
	for i, line := range label {
		c.text(class+" label", "end", left, y+4.5+lineHeight*(float64(i)-float64(len(label)-1)/2), line)
	}
	if row.Low != nil && row.High != nil {
		x1, x2 := a.at(*row.Low), a.at(*row.High)
		c.line(class+" whisker", x1, y, x2, y)
		c.line(class+" whisker", x1, y-4, x1, y+4)
		c.line(class+" whisker", x2, y-4, x2, y+4)
	}
	if row.Ratio != nil {
		c.circle(class+" dot", a.at(*row.Ratio), y, 4.5, row.Tip)
	}
	for _, m := range row.Published {
		c.hollow(a.at(m.Ratio), y, m.Shape, m.Tip)
	}
	c.text(class+" value", "end", Width-2, y+4.5, row.Value)
}

// Shapes is how many hollow markers can be told apart.
const Shapes = 6

// hollow draws a published figure: diamond, square, triangles, octagon, hourglass.
func (c *canvas) hollow(x, y float64, shape int, tip string) {
	points := [Shapes]string{"0,-6.5 6.5,0 0,6.5 -6.5,0", "-5,-5 5,-5 5,5 -5,5", "0,-6 6,5 -6,5", "0,6 6,-5 -6,-5",
		"-2.5,-6 2.5,-6 6,-2.5 6,2.5 2.5,6 -2.5,6 -6,2.5 -6,-2.5", "-5.5,-5.5 5.5,-5.5 -5.5,5.5 5.5,5.5"}[((shape%Shapes)+Shapes)%Shapes]
	c.add(`<polygon class="hollow" transform="translate(%s %s)" points="%s">%s</polygon>`, num(x), num(y), points, hint(tip))
}

// Symbol is a marker by itself, for legends.
func Symbol(shape int) template.HTML {
	c := &canvas{}
	c.hollow(8, 8, shape, "")
	return template.HTML(`<svg class="symbol" viewBox="0 0 16 16" aria-hidden="true">` + c.body.String() + `</svg>`)
}
