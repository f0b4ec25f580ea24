package chart

import (
	"math"
	"strconv"
)

// axis maps values to horizontal positions.
type axis struct {
	low, high   float64 // values
	left, right float64 // positions
	log         bool
	ticks       []float64
}

// linear makes an axis from low to high, widened to round ticks.
func linear(low, high, left, right float64) axis {
	if !(high > low) {
		low, high = low-0.05*math.Abs(low), high+0.05*math.Abs(high)
	}
	if low == high {
		high = low + 1
	}
	step := niceStep((high - low) / 5)
	a := axis{low: math.Floor(low/step+1e-9) * step, high: math.Ceil(high/step-1e-9) * step, left: left, right: right}
	for i := 0; ; i++ {
		t := a.low + float64(i)*step
		if t > a.high+step/2 {
			break
		}
		a.ticks = append(a.ticks, math.Round(t/step)*step)
	}
	return a
}

// niceStep is the step of 1, 2 or 5 times a power of ten next above about.
func niceStep(about float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(about)))
	for _, m := range []float64{1, 2, 5} {
		if about <= m*power*(1+1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logarithmic makes an axis with ticks at 1, 2 and 5 times powers of ten (fewer over many decades); low
// and high are positive.
func logarithmic(low, high, left, right float64) axis {
	if !(high > low) {
		low, high = low/2, high*2
	}
	a := axis{low: low / 1.08, high: high * 1.08, left: left, right: right, log: true}
	marks := []float64{1, 2, 5}
	switch decades := math.Log10(high / low); {
	case decades > 2.2:
		marks = []float64{1}
	case decades < 1:
		marks = []float64{1, 1.5, 2, 3, 4, 5, 7}
	}
	for e := math.Floor(math.Log10(a.low)); e <= math.Ceil(math.Log10(a.high)); e++ {
		for _, m := range marks {
			if t := m * math.Pow(10, e); t >= a.low && t <= a.high {
				a.ticks = append(a.ticks, t)
			}
		}
	}
	return a
}

// at is the position of v, kept inside the axis.
func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(max(v, a.low)), math.Log(low), math.Log(high)
	}
	share := (v - low) / (high - low)
	return a.left + min(max(share, 0), 1)*(a.right-a.left)
}

// draw draws grid lines from top to bottom and tick labels below them, without labels that would touch the one before.
// label renders a value; nil is the plain number.
func (a axis) draw(c *canvas, top, bottom float64, label func(float64) string) {
	if label == nil {
		label = plain
	}
	end := math.Inf(-1)
	for _, t := range a.ticks {
		x, s := a.at(t), label(t)
		c.line("grid", x, top, x, bottom)
		half := textWidth(s) / 2
		x = min(x, Width-half) // a wide label at the end stays inside the drawing
		if x-half > end+4 {
			c.text("tick", "middle", x, bottom+16, s)
			end = x + half
		}
	}
}

func plain(v float64) string {
	return strconv.FormatFloat(v, 'f', -1, 32)
}
