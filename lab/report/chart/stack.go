package chart

import (
	"fmt"
	"html/template"
	"strings"
)

// Stack shows the parts of a total: one horizontal bar per row, one segment per part.
type Stack struct {
	Text
	Rows  []StackRow
	Unit  string
	Label func(float64) string
}

// StackRow is one bar. Parts are in the order of the legend, at most Fills of them.
type StackRow struct {
	Label     string
	Value     string
	Parts     []Part
	Highlight bool
}

// Part is one segment. Name is written into it if it fits.
type Part struct {
	Name string
	Size float64
	Fill int
	Tip  string
}

// Fills is the number of segments that differ by shade or texture.
const Fills = 6

// SVG draws the chart.
func (s Stack) SVG() template.HTML {
	high := 0.0
	var names []name
	for _, r := range s.Rows {
		names = append(names, name{r.Label, r.Value, r.Highlight})
		total := 0.0
		for _, p := range r.Parts {
			total += max(p.Size, 0)
		}
		high = max(high, total)
	}
	if high == 0 {
		high = 1
	}
	f := newFrame(names, 28, func(left, right float64) axis { return linear(0, high, left, right) })
	f.begin(6, s.Label)
	for i, r := range s.Rows {
		from := 0.0
		for _, p := range r.Parts {
			if p.Size <= 0 {
				continue
			}
			x1, x2 := f.at(from), f.at(from+p.Size)
			f.fill(p.Fill, x1, f.y(i)-9, max(x2-x1-0.6, 0.4), 18, p.Tip)
			if p.Name != "" && textWidth(p.Name)+8 < x2-x1 {
				f.text(fmt.Sprintf("in%d", p.Fill%Fills), "middle", (x1+x2)/2, f.y(i)+4.5, p.Name)
			}
			from += p.Size
		}
	}
	f.line("axis", f.left, f.top, f.left, f.bottom())
	f.unit(s.Unit)
	return f.svg(s.Text)
}

// fill draws a segment by shade and texture, so that segments differ without colours as well.
func (c *canvas) fill(which int, x, y, w, h float64, tip string) {
	which %= Fills
	c.rect(fmt.Sprintf("fill%d", which), x, y, w, h, tip)
	var path strings.Builder
	rows := func(step float64) {
		for at := y + step; at < y+h-1; at += step {
			fmt.Fprintf(&path, "M%s %sh%s", num(x), num(at), num(w))
		}
	}
	columns := func(step float64) {
		for at := x + step; at < x+w-1; at += step {
			fmt.Fprintf(&path, "M%s %sv%s", num(at), num(y), num(h))
		}
	}
	const near, far = 4, 6
	switch which {
	case 2:
		rows(near)
	case 3:
		columns(near)
	case 4:
		rows(far)
		columns(far)
	case 5:
		rows(h / 2)
	}
	if path.Len() > 0 {
		c.add(`<path class="texture" d="%s"/>`, path.String())
	}
}

// FillSymbol is a segment by itself, for legends.
func FillSymbol(fill int) template.HTML {
	return symbol(func(c *canvas) { c.fill(fill, 1, 2, 14, 12, "") })
}
