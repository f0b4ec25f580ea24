package chart

import (
	"html/template"
	"math"
)

// Strip shows raw samples: one row per network, one mark per sample, in the order of measurement from the top of the row.
type Strip struct {
	Text
	Rows []StripRow
	// Unit is written under the scale. Log makes the scale logarithmic. Label renders its ticks.
	Unit  string
	Log   bool
	Label func(float64) string
}

// StripRow has the samples of one network. Ticks are values to mark with a bar, such as the median.
type StripRow struct {
	Label     string
	Value     string
	Points    []StripPoint
	Ticks     []float64
	Highlight bool
}

// StripPoint is one sample. A discarded one is a cross.
type StripPoint struct {
	Value     float64
	Discarded bool
	Tip       string
}

// SVG draws the chart.
func (s Strip) SVG() template.HTML {
	low, high := math.Inf(1), math.Inf(-1)
	var names []name
	for _, r := range s.Rows {
		names = append(names, name{r.Label, r.Value, r.Highlight})
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
	scale := linear
	if s.Log && low > 0 {
		scale = logarithmic
	}
	f := newFrame(names, 30, func(left, right float64) axis { return scale(low, high, left, right) })
	f.begin(6, s.Label)
	const spread = 16.0
	for i, r := range s.Rows {
		y := f.y(i)
		f.line("guide", f.left, y+f.row/2, f.right, y+f.row/2)
		for j, p := range r.Points {
			dy := 0.0
			if len(r.Points) > 1 {
				dy = spread * (float64(j)/float64(len(r.Points)-1) - 0.5)
			}
			x := f.at(p.Value)
			if p.Discarded {
				f.add(`<path class="cross" d="M%s %sl6 6m0 -6l-6 6">%s</path>`, num(x-3), num(y+dy-3), hint(p.Tip))
				continue
			}
			f.circle(f.class(i)+" sample", x, y+dy, 2.6, p.Tip)
		}
		for _, t := range r.Ticks {
			f.line(f.class(i)+" median", f.at(t), y-11, f.at(t), y+11)
		}
	}
	f.unit(s.Unit)
	return f.svg(s.Text)
}
