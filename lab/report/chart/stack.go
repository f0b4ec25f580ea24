package chart

import (
	"fmt"
	"html/template"
	"strings"
)

// Stack shows what a total is made of: one horizontal bar for each row, one segment for each part.
type Stack struct {
	Text
	Rows  []StackRow
	Unit  string
	Label func(float64) string
}

// StackRow is one bar; Parts are in the order of the legend, at most Fills of them.
type StackRow struct {
	Label     string
	Value     string
	Parts     []Part
	Highlight bool
}

// Part is one segment. Name is written into it where there is room.
type Part struct {
	Name string
	Size float64
	Fill int
	Tip  string
}

// Fills is how many segments can be told apart, by shade and by texture.
const Fills = 6

// SVG draws the chart.
func (s Stack) SVG() template.HTML {
	c := &canvas{}
	high, values := 0.0, 0.0
	labels := make([]string, len(s.Rows))
	for i, r := range s.Rows {
		labels[i] = r.Label
		values = max(values, boldWidth(r.Value))
		total := 0.0
		for _, p := range r.Parts {
			total += max(p.Size, 0)
		}
		high = max(high, total)
	}
	if high == 0 {
		high = 1
	}
	left := labelWidth(labels)
	a := linear(0, high, left+10, Width-values-18)
	const top, height = 6.0, 28.0
	bottom := top + height*float64(len(s.Rows))
	a.draw(c, top, bottom, s.Label)
	for i, r := range s.Rows {
		r.draw(c, a, left, top+height*(float64(i)+0.5))
	}
	c.line("axis", a.left, top, a.left, bottom)
	c.height = bottom + 22
	if s.Unit != "" {
		c.text("note", "middle", (a.left+a.right)/2, bottom+33, s.Unit)
		c.height = bottom + 40
	}
	return c.svg(s.Text)
}

func (r StackRow) draw(c *canvas, a axis, left, y float64) {
	class := "mark"
	if r.Highlight {
		class = "mark hot"
	}
	c.text(class+" label", "end", left, y+4.5, fit(r.Label, left-4))
	from := 0.0
	for _, p := range r.Parts {
		if p.Size <= 0 {
			continue
		}
		x1, x2 := a.at(from), a.at(from+p.Size)
		c.fill(p.Fill, x1, y-9, max(x2-x1-0.6, 0.4), 18, p.Tip)
		if p.Name != "" && textWidth(p.Name)+8 < x2-x1 {
			c.text(fmt.Sprintf("in%d", p.Fill%Fills), "middle", (x1+x2)/2, y+4.5, p.Name)
		}
		from += p.Size
	}
	c.text(class+" value", "end", Width-2, y+4.5, r.Value)
}

// fill draws a segment. Shades alone do not tell all segments apart: not to everybody, and not on paper without colours.
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
	c := &canvas{}
	c.fill(fill, 1, 2, 14, 12, "")
	return template.HTML(`<svg class="symbol" viewBox="0 0 16 16" aria-hidden="true">` + c.body.String() + `</svg>`)
}
