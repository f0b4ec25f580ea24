package chart

import (
	"html/template"
	"math"
	"slices"
)

// Percentiles shows P50, P90, P99 and P99.9 of each network on a logarithmic scale.
type Percentiles struct {
	Text
	Rows  []PercentileRow
	Label func(float64) string
}

// PercentileRow has the four percentiles. The last is 0 if it is missing. Absent is the reason why all are missing.
type PercentileRow struct {
	Label     string
	Absent    string
	At        [4]float64
	Tips      [4]string
	Highlight bool
}

// SVG draws the chart.
func (p Percentiles) SVG() template.HTML {
	low, high := math.Inf(1), 0.0
	var names []name
	for _, r := range p.Rows {
		names = append(names, name{r.Label, "", r.Highlight})
		for _, v := range r.At {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if math.IsInf(low, 0) {
		low, high = 1, 10
	}
	f := newFrame(names, rowHeight, func(left, right float64) axis { return logarithmic(low, high, left, right) })
	f.begin(6, p.Label)
	for i, r := range p.Rows {
		f.line("guide", f.left, f.y(i), f.right, f.y(i))
		if r.Absent != "" {
			f.text("note", "end", f.right, f.y(i)+4.5, r.Absent)
			continue
		}
		f.whisker(i, r.At[0], slices.Max(r.At[:]))
		for j, v := range r.At {
			if v > 0 {
				f.percentile(f.class(i), f.at(v), f.y(i), j, r.Tips[j])
			}
		}
	}
	return f.svg(p.Text)
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
	return symbol(func(c *canvas) { c.percentile("mark", 8, 8, which, "") })
}
