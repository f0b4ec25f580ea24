package chart

import (
	"cmp"
	"html/template"
	"slices"
)

// Curve is a chart of lines over a logarithmic horizontal scale. Each line has its name at its end.
type Curve struct {
	Text
	Lines []CurveLine
	// X and Y name the scales. LabelX and LabelY render their ticks; nil is the plain number.
	X, Y           string
	LabelX, LabelY func(float64) string
}

// CurveLine is one line, of points from left to right.
type CurveLine struct {
	Label     string
	Highlight bool
	Points    []CurvePoint
}

// CurvePoint is one point. Low and High are nil if there is no interval. Apart means that a point before it is missing: no
// line joins it to the one before.
type CurvePoint struct {
	X, Y      float64
	Low, High *float64
	Apart     bool
	Tip       string
}

const (
	curveHeight = 250.0
	curveTop    = 24.0
	// curveLabel is the least distance between the names of two lines.
	curveLabel = 15.0
)

// SVG draws the chart. The vertical scale starts at 0, so that heights compare.
func (v Curve) SVG() template.HTML {
	c := &canvas{}
	low, high, top := 0.0, 0.0, 0.0
	var labels []string
	for _, l := range v.Lines {
		labels = append(labels, l.Label)
		for _, p := range l.Points {
			if low == 0 || p.X < low {
				low = p.X
			}
			high, top = max(high, p.X), max(top, p.Y)
			if p.High != nil {
				top = max(top, *p.High)
			}
		}
	}
	if high == 0 { // nothing to draw
		low, high = 1, 1
	}
	labelY := v.LabelY
	if labelY == nil {
		labelY = plain
	}
	y := linear(0, top, curveTop+curveHeight, curveTop) // upwards
	left := 0.0
	for _, t := range y.ticks {
		left = max(left, textWidth(labelY(t))+8)
	}
	x := logarithmic(low, high, left+6, Width-labelWidth(labels)-14)
	if low == high {
		x.ticks = []float64{low}
	}
	x.draw(c, curveTop, curveTop+curveHeight, v.LabelX)
	for _, t := range y.ticks {
		c.line("grid", x.left, y.at(t), x.right, y.at(t))
		c.text("tick", "end", left, y.at(t)+4.5, labelY(t))
	}
	c.text("note", "start", 0, curveTop-11, v.Y)
	c.text("note", "end", x.right, curveTop+curveHeight+34, v.X)
	ends := v.ends(y)
	for i, l := range v.Lines {
		l.draw(c, x, y, i, ends[i])
	}
	c.height = curveTop + curveHeight + 42
	return c.svg(v.Text)
}

// ends are the heights of the lines' names: at their last points, but without overlap.
func (v Curve) ends(y axis) []float64 {
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
			heights[i] = max(heights[i], heights[order[n-1]]+curveLabel)
		}
	}
	// Names that would be below the chart move up, with those above them.
	bottom := curveTop + curveHeight - curveLabel/2
	for _, i := range slices.Backward(order) {
		heights[i] = min(heights[i], bottom)
		bottom = heights[i] - curveLabel
	}
	return heights
}

// draw draws one line with its points, intervals and name. Lines differ in their dashes.
func (l CurveLine) draw(c *canvas, x, y axis, number int, end float64) {
	class := "mark"
	if l.Highlight {
		class = "mark hot"
	}
	broken := [...]string{"none", "7 4", "2 3", "10 3 2 3", "4 2", "1 2"}[number%6]
	for i, p := range l.Points {
		at, height := x.at(p.X), y.at(p.Y)
		if i > 0 && !p.Apart {
			before := l.Points[i-1]
			c.add(`<line class="%s whisker" stroke-dasharray="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, broken,
				num(x.at(before.X)), num(y.at(before.Y)), num(at), num(height))
		}
		if p.Low != nil && p.High != nil {
			c.line(class+" whisker", at, y.at(*p.Low), at, y.at(*p.High))
		}
		c.circle(class+" dot", at, height, 4, p.Tip)
	}
	if n := len(l.Points); n > 0 {
		last := l.Points[n-1]
		c.line(class+" lead", x.at(last.X), y.at(last.Y), x.right+8, end)
		c.text(class+" label", "start", x.right+10, end+4.5, fit(l.Label, Width-x.right-12))
	}
}
