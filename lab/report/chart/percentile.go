package chart

import (
	"html/template"
	"math"
)

// Percentiles shows P50, P90, P99 and P99.9 of each network on a logarithmic scale.
type Percentiles struct {
	Text
	Rows  []PercentileRow
	Label func(float64) string
}

// PercentileRow holds the four percentiles; the last may be 0 where there is none. Absent says why there are none at all.
type PercentileRow struct {
	Label     string
	Absent    string
	At        [4]float64
	Tips      [4]string
	Highlight bool
}

// SVG draws the chart.
func (p Percentiles) SVG() template.HTML {
	c := &canvas{}
	low, high := math.Inf(1), 0.0
	labels := make([]string, len(p.Rows))
	for i, r := range p.Rows {
		labels[i] = r.Label
		for _, v := range r.At {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if math.IsInf(low, 0) {
		low, high = 1, 10
	}
	left := labelWidth(labels)
	a := logarithmic(low, high, left+10, Width-14)
	const top = 6.0
	bottom := top + rowHeight*float64(len(p.Rows))
	a.draw(c, top, bottom, p.Label)
	for i, r := range p.Rows {
		r.draw(c, a, left, top+rowHeight*(float64(i)+0.5))
	}
	c.height = bottom + 24
	return c.svg(p.Text)
}

func (r PercentileRow) draw(c *canvas, a axis, left, y float64) {
	class := "mark"
	if r.Highlight {
		class = "mark hot"
	}
	c.text(class+" label", "end", left, y+4.5, fit(r.Label, left-4))
	last := r.At[0]
	for _, v := range r.At {
		last = max(last, v)
	}
	c.line("guide", a.left, y, a.right, y)
	if r.Absent != "" {
		c.text("note", "end", a.right, y+4.5, r.Absent)
		return
	}
	c.line(class+" whisker", a.at(r.At[0]), y, a.at(last), y)
	for i, v := range r.At {
		if v > 0 {
			c.percentile(class, a.at(v), y, i, r.Tips[i])
		}
	}
}

// percentile draws the mark of one of the four: dot, bar, triangle, hollow circle.
func (c *canvas) percentile(class string, x, y float64, which int, tip string) {
	switch which {
	case 0:
		c.circle(class+" dot", x, y, 4.5, tip)
	case 1:
		c.rect(class+" dot", x-1.5, y-6, 3, 12, tip)
	case 2:
		c.add(`<polygon class="%s dot" transform="translate(%s %s)" points="0,-5.5 5.5,4.5 -5.5,4.5">%s</polygon>`, class, num(x), num(y), hint(tip))
	default:
		c.circle(class+" ring", x, y, 4.2, tip)
	}
}

// PercentileSymbol is one of the four marks by itself, for legends.
func PercentileSymbol(which int) template.HTML {
	c := &canvas{}
	c.percentile("mark", 8, 8, which, "")
	return template.HTML(`<svg class="symbol" viewBox="0 0 16 16" aria-hidden="true">` + c.body.String() + `</svg>`)
}
