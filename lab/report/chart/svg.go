// Package chart draws the report's charts as SVG, in two forms: rows of marks, intervals and bars on a common scale, and
// lines over a logarithmic scale.
// Colours and fonts are classes of the page's style sheet, so that a chart follows its themes. Every chart has a title and
// a description for screen readers.
package chart

import (
	"fmt"
	"html"
	"html/template"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Width is the width of every chart, in its own units. The page scales it.
const Width = 560

// charWidth is the mean width of a character at the charts' font size of 13, generous because fonts differ.
const charWidth = 7.6

// Text is a chart's title and description, for screen readers.
type Text struct {
	ID          string // unique on the page
	Title, Desc string
}

type canvas struct {
	body   strings.Builder
	height float64
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.body, format+"\n", args...) }

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	c.add(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, num(x1), num(y1), num(x2), num(y2))
}

// text writes s with its baseline at y; anchor is start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	c.add(`<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, num(x), num(y), html.EscapeString(s))
}

// svg completes the drawing. The methods above have escaped all text in it.
func (c *canvas) svg(t Text) template.HTML {
	id := html.EscapeString(t.ID)
	return template.HTML(fmt.Sprintf(
		`<svg class="chart" viewBox="0 0 %d %s" role="img" aria-labelledby="%s-t %s-d"><title id="%s-t">%s</title><desc id="%s-d">%s</desc>`+"\n%s</svg>",
		Width, num(c.height), id, id, id, html.EscapeString(t.Title), id, html.EscapeString(t.Desc), c.body.String()))
}

// symbol is a mark by itself, for legends.
func symbol(draw func(*canvas)) template.HTML {
	c := &canvas{}
	draw(c)
	return template.HTML(`<svg class="symbol" viewBox="0 0 16 16" aria-hidden="true">` + c.body.String() + `</svg>`)
}

// hint is the tooltip of a mark.
func hint(s string) string {
	if s == "" {
		return ""
	}
	return "<title>" + html.EscapeString(s) + "</title>"
}

// num writes a coordinate with at most one decimal.
func num(v float64) string {
	s := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0")
}

// textWidth estimates the width of s.
func textWidth(s string) float64 { return charWidth * float64(utf8.RuneCountInString(s)) }

// boldWidth estimates the width of s in bold.
func boldWidth(s string) float64 { return 1.12 * textWidth(s) }

// labelWidth is the width of the widest label, at most about half of the chart.
func labelWidth(labels []string) float64 {
	w := 60.0
	for _, l := range labels {
		w = max(w, boldWidth(l)+10)
	}
	return min(w, Width*0.48)
}

// lineHeight is the distance of two lines of a label.
const lineHeight = 14.0

// lines breaks s into two lines if it does not fit into one: before a division sign, else at the last blank that fits. A
// second line that is too long is shortened.
func lines(s string, width float64) []string {
	if boldWidth(s) <= width {
		return []string{s}
	}
	at := strings.Index(s, " ÷ ")
	if at < 0 || boldWidth(s[:at]) > width {
		at = -1
		for i, r := range s {
			if r == ' ' && boldWidth(s[:i]) <= width {
				at = i
			}
		}
	}
	if at <= 0 {
		return []string{fit(s, width)}
	}
	return []string{s[:at], fit(s[at+1:], width)}
}

// fit shortens s until it fits into the width.
func fit(s string, width float64) string {
	if boldWidth(s) <= width {
		return s
	}
	runes := []rune(s)
	n := max(int(width/boldWidth("x"))-1, 1)
	return strings.TrimRight(string(runes[:min(n, len(runes))]), " ") + "…"
}
