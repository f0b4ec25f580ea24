package chart

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Rows is a chart with one row per network: a label on the left, marks on a common scale, a value on the right.
type Rows struct {
	Text
	Rows []Row
	// Unit is written under the scale. Label renders its ticks; nil is the plain number.
	Unit  string
	Label func(float64) string
	// Log makes the scale logarithmic, unless there are values up to 0.
	Log bool
	// Baseline names a line at 1, if it is set.
	Baseline string
}

// Row has the marks of one network.
type Row struct {
	// Value is written at the right end: a figure, or the reason why there are no marks.
	Label, Value string
	Highlight    bool
	Marks        []Mark
	// Low and High are the ends of an interval; both are nil without one.
	Low, High *float64
	// Parts are the segments of a bar, from 0, at most Fills of them.
	Parts []Part
}

// Mark is one value.
type Mark struct {
	At    float64
	Shape Shape
	Tip   string
}

// Part is one segment of a bar. Name is written into it if it fits.
type Part struct {
	Name string
	Size float64
	Fill int
	Tip  string
}

const (
	rowHeight = 30.0
	// tallRow is the height of all rows of a chart if a label takes two lines.
	tallRow = 34.0
	// rowsTop is the upper end of the rows, below the name of the baseline.
	rowsTop = 22.0
	// spread is the height over which the samples of a row are distributed.
	spread = 16.0
)

// scale is the axis of the chart, between two positions.
func (v Rows) scale(left, right float64) axis {
	low, high := math.Inf(1), math.Inf(-1)
	widen := func(values ...float64) {
		for _, at := range values {
			low, high = min(low, at), max(high, at)
		}
	}
	for _, r := range v.Rows {
		for _, m := range r.Marks {
			widen(m.At)
		}
		if r.Low != nil && r.High != nil {
			widen(*r.Low, *r.High)
		}
		total := 0.0
		for _, p := range r.Parts {
			total += p.Size
			widen(0, total)
		}
	}
	if v.Baseline != "" {
		widen(1)
		margin := (high - low) * 0.04
		widen(low-margin, high+margin)
	}
	switch {
	case math.IsInf(low, 0):
		return linear(0, 1, left, right)
	case v.Log && low > 0:
		return logarithmic(low, high, left, right)
	}
	return linear(low, high, left, right)
}

// SVG draws the chart.
func (v Rows) SVG() template.HTML {
	c := &canvas{}
	var labels []string
	values := 0.0
	for _, r := range v.Rows {
		labels = append(labels, r.Label)
		values = max(values, boldWidth(r.Value))
	}
	edge, height := labelWidth(labels), rowHeight
	for _, l := range labels {
		if len(lines(l, edge-4)) > 1 {
			height = tallRow
		}
	}
	bottom := rowsTop + height*float64(len(v.Rows))
	x := v.scale(edge+10, Width-values-18)
	x.draw(c, rowsTop, bottom, v.Label)
	if v.Baseline != "" {
		c.line("base", x.at(1), rowsTop-4, x.at(1), bottom)
		c.text("note", anchorNear(x.at(1), x), x.at(1), rowsTop-9, v.Baseline+" = 1")
	}
	for i, r := range v.Rows {
		y := rowsTop + height*(float64(i)+0.5)
		c.line("guide", x.left, y, x.right, y)
		r.draw(c, x, y)
		label := lines(r.Label, edge-4)
		for j, line := range label {
			c.text(r.class()+" label", "end", edge, y+4.5+lineHeight*(float64(j)-float64(len(label)-1)/2), line)
		}
		c.text(r.class()+" value", "end", Width-2, y+4.5, r.Value)
	}
	c.text("note", "middle", (x.left+x.right)/2, bottom+33, v.Unit)
	c.height = bottom + 40
	return c.svg(v.Text)
}

func (r Row) class() string {
	if r.Highlight {
		return "mark hot"
	}
	return "mark"
}

// draw draws the marks of the row, y being its middle. Samples are distributed from the top of the row to its bottom.
func (r Row) draw(c *canvas, x axis, y float64) {
	from := 0.0
	for _, p := range r.Parts {
		left, right := x.at(from), x.at(from+p.Size)
		c.fill(p.Fill, left, y-9, max(right-left-0.6, 0.4), 18, p.Tip)
		if textWidth(p.Name)+8 < right-left {
			c.text(fmt.Sprintf("in%d", p.Fill%Fills), "middle", (left+right)/2, y+4.5, p.Name)
		}
		from += p.Size
	}
	if r.Low != nil && r.High != nil {
		c.line(r.class()+" whisker", x.at(*r.Low), y, x.at(*r.High), y)
		for _, end := range []float64{*r.Low, *r.High} {
			c.line(r.class()+" whisker", x.at(end), y-4, x.at(end), y+4)
		}
	}
	samples, drawn := 0, 0.0
	for _, m := range r.Marks {
		if m.Shape.sample() {
			samples++
		}
	}
	for _, m := range r.Marks {
		dy := 0.0
		if m.Shape.sample() && samples > 1 {
			dy = spread * (drawn/float64(samples-1) - 0.5)
			drawn++
		}
		c.mark(r.class(), m.Shape, x.at(m.At), y+dy, m.Tip)
	}
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

// Shape is the form of a mark.
type Shape int

// The shapes: of a value, of percentiles, of raw samples, of a median among samples, and of published values, hollow.
const (
	Dot Shape = iota
	Bar
	Triangle
	Ring
	Sample
	Discarded
	Median
	Published
)

// shapes are paths around the middle of each mark, with their classes.
var shapes = []struct{ class, path string }{
	Dot:       {"dot", "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0"},
	Bar:       {"dot", "M-1.5-6h3v12h-3z"},
	Triangle:  {"dot", "M0-5.5l5.5 10h-11z"},
	Ring:      {"ring", "M-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0-8.4 0"},
	Sample:    {"sample", "M-2.6 0a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0-5.2 0"},
	Discarded: {"cross", "M-3-3l6 6m0-6l-6 6"},
	Median:    {"median", "M0-11v22"},
	Published: {"hollow", "M0-6.5L6.5 0 0 6.5-6.5 0z"},
}

func (s Shape) sample() bool { return s == Sample || s == Discarded }

func (c *canvas) mark(class string, s Shape, x, y float64, tip string) {
	c.add(`<path class="%s %s" transform="translate(%s %s)" d="%s">%s</path>`, class, shapes[s].class, num(x), num(y), shapes[s].path, hint(tip))
}

// Symbol is a mark by itself, for legends.
func Symbol(s Shape) template.HTML {
	return symbol(func(c *canvas) { c.mark("mark", s, 8, 8, "") })
}

// Fills is the number of segments that differ by shade or texture.
const Fills = 6

// textures are the distances of the horizontal and of the vertical lines of each fill.
var textures = [Fills]struct{ rows, columns float64 }{2: {rows: 4}, 3: {columns: 4}, 4: {6, 6}, 5: {rows: 9}}

// fill draws a segment by shade and texture, so that segments differ without colours as well.
func (c *canvas) fill(which int, x, y, w, h float64, tip string) {
	which %= Fills
	c.add(`<rect class="fill%d" x="%s" y="%s" width="%s" height="%s">%s</rect>`, which, num(x), num(y), num(w), num(h), hint(tip))
	var path strings.Builder
	if step := textures[which].rows; step > 0 {
		for at := y + step; at < y+h-1; at += step {
			fmt.Fprintf(&path, "M%s %sh%s", num(x), num(at), num(w))
		}
	}
	if step := textures[which].columns; step > 0 {
		for at := x + step; at < x+w-1; at += step {
			fmt.Fprintf(&path, "M%s %sv%s", num(at), num(y), num(h))
		}
	}
	if path.Len() > 0 {
		c.add(`<path class="texture" d="%s"/>`, path.String())
	}
}

// FillSymbol is a segment by itself, for legends.
func FillSymbol(fill int) template.HTML {
	return symbol(func(c *canvas) { c.fill(fill, 1, 2, 14, 12, "") })
}
