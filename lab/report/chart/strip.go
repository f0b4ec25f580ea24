package chart

import (
	"html/template"
	"math"
)

// Strip shows raw samples: one row for each network, one mark for each sample, in the order they were
// taken from the top of the row to its bottom.
type Strip struct {
	Text
	Rows []StripRow
	// Unit is printed under the scale; Log chooses a logarithmic one; Label renders ticks.
	Unit  string
	Log   bool
	Label func(float64) string
}

// StripRow is one network's samples. Ticks are values to mark with a bar, such as the median.
type StripRow struct {
	Label     string
	Value     string
	Points    []StripPoint
	Ticks     []float64
	Highlight bool
}

// StripPoint is one sample; discarded ones are drawn as a cross.
type StripPoint struct {
	Value     float64
	Discarded bool
	Tip       string
}

// SVG draws the chart.
func (s Strip) SVG() template.HTML {
	c := &canvas{}
	low, high := math.Inf(1), math.Inf(-1)
	labels, values := make([]string, len(s.Rows)), 0.0
	for i, r := range s.Rows {
		labels[i] = r.Label
		values = max(values, boldWidth(r.Value))
		for _, p := range r.Points {
			low, high = min(low, p.Value), max(high, p.Value)
		}
		for _, t := range r.Ticks {
			low, high = min(low, t), max(high, t)
		}
	}
	if math.IsInf(low, 0) {
		low, high = 0, 1
	}
	left := labelWidth(labels)
	a := linear(low, high, left+10, Width-values-18)
	if s.Log && low > 0 {
		a = logarithmic(low, high, left+10, Width-values-18)
	}
	const top, height = 6.0, 30.0
	bottom := top + height*float64(len(s.Rows))
	a.draw(c, top, bottom, s.Label)
	for i, r := range s.Rows {
		r.draw(c, a, left, top+height*(float64(i)+0.5))
	}
	c.height = bottom + 22
	if s.Unit != "" {
		c.text("note", "middle", (a.left+a.right)/2, bottom+33, s.Unit)
		c.height = bottom + 40
	}
	return c.svg(s.Text)
}

func (r StripRow) draw(c *canvas, a axis, left, y float64) {
	class := "mark"
	if r.Highlight {
		class = "mark hot"
	}
	const spread = 16.0
	c.line("guide", a.left, y+15, a.right, y+15)
	c.text(class+" label", "end", left, y+4.5, fit(r.Label, left-4))
	for i, p := range r.Points {
		dy := 0.0
		if len(r.Points) > 1 {
			dy = spread * (float64(i)/float64(len(r.Points)-1) - 0.5)
		}
		x := a.at(p.Value)
		if p.Discarded {
			c.add(`<path class="cross" d="M%s %sl6 6m0 -6l-6 6">%s</path>`, num(x-3), num(y+dy-3), hint(p.Tip))
			continue
		}
		c.circle(class+" sample", x, y+dy, 2.6, p.Tip)
	}
	for _, t := range r.Ticks {
		c.line(class+" median", a.at(t), y-11, a.at(t), y+11)
	}
	c.text(class+" value", "end", Width-2, y+4.5, r.Value)
}
