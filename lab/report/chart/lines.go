package chart

import (
	"cmp"
	"html/template"
	"slices"
)

// Lines is a chart of lines over a logarithmic horizontal scale. Each line has its name at its end.
type Lines struct {
	Text
	Lines []Line
	// X and Y name the scales. LabelX and LabelY render their ticks.
	X, Y           string
	LabelX, LabelY func(float64) string
}

// Line is one line, of points from left to right.
type Line struct {
	Label     string
	Highlight bool
	Points    []Point
}

// Point is one point. Low and High are nil if there is no interval. Apart means that a point before it is missing: no line
// joins it to the one before.
type Point struct {
	X, Y      float64
	Low, High *float64
	Apart     bool
	Tip       string
}

const (
	linesTop    = 24.0
	linesBottom = linesTop + 250
	// nameHeight is the least distance between the names of two lines.
	nameHeight = 15.0
)

// SVG draws the chart. The vertical scale starts at 0, so that heights compare.
func (v Lines) SVG() template.HTML {
	c := &canvas{height: linesBottom + 42}
	var labels []string
	var at []float64
	top := 0.0
	for _, l := range v.Lines {
		labels = append(labels, l.Label)
		for _, p := range l.Points {
			at, top = append(at, p.X), max(top, p.Y)
			if p.High != nil {
				top = max(top, *p.High)
			}
		}
	}
	if len(at) == 0 {
		return c.svg(v.Text)
	}
	y := linear(0, top, linesBottom, linesTop) // upwards
	left := 0.0
	for _, t := range y.ticks {
		left = max(left, textWidth(v.LabelY(t))+8)
	}
	x := logarithmic(slices.Min(at), slices.Max(at), left+6, Width-labelWidth(labels)-14)
	x.draw(c, linesTop, linesBottom, v.LabelX)
	for _, t := range y.ticks {
		c.line("grid", x.left, y.at(t), x.right, y.at(t))
		c.text("tick", "end", left, y.at(t)+4.5, v.LabelY(t))
	}
	c.text("note", "start", 0, linesTop-11, v.Y)
	c.text("note", "end", x.right, linesBottom+34, v.X)
	heights := v.nameHeights(y)
	for i, l := range v.Lines {
		l.draw(c, x, y, i, heights[i])
	}
	return c.svg(v.Text)
}

// nameHeights are the heights of the lines' names: at their last points, but without overlap.
func (v Lines) nameHeights(y axis) []float64 {
	heights, order := make([]float64, len(v.Lines)), make([]int, len(v.Lines))
	for i, l := range v.Lines {
		order[i] = i
		if n := len(l.Points); n > 0 {
			heights[i] = y.at(l.Points[n-1].Y)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(heights[a], heights[b]) })
	for n, i := range order {
		if n > 0 {
			heights[i] = max(heights[i], heights[order[n-1]]+nameHeight)
		}
	}
	// Names that would be below the chart move up, with those above them.
	bottom := linesBottom - nameHeight/2
	for _, i := range slices.Backward(order) {
		heights[i] = min(heights[i], bottom)
		bottom = heights[i] - nameHeight
	}
	return heights
}

// draw draws one line with its points, intervals and name. Lines differ in their dashes.
func (l Line) draw(c *canvas, x, y axis, number int, nameHeight float64) {
	class := Row{Highlight: l.Highlight}.class()
	dashes := [...]string{"none", "7 4", "2 3", "10 3 2 3", "4 2", "1 2"}[number%6]
	for i, p := range l.Points {
		if i > 0 && !p.Apart {
			before := l.Points[i-1]
			c.add(`<line class="%s whisker" stroke-dasharray="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, dashes,
				num(x.at(before.X)), num(y.at(before.Y)), num(x.at(p.X)), num(y.at(p.Y)))
		}
		if p.Low != nil && p.High != nil {
			c.line(class+" whisker", x.at(p.X), y.at(*p.Low), x.at(p.X), y.at(*p.High))
		}
		c.mark(class, Dot, x.at(p.X), y.at(p.Y), p.Tip)
	}
	if n := len(l.Points); n > 0 {
		last := l.Points[n-1]
		c.line(class+" lead", x.at(last.X), y.at(last.Y), x.right+8, nameHeight)
		c.text(class+" label", "start", x.right+10, nameHeight+4.5, fit(l.Label, Width-x.right-12))
	}
}
