// Package charttest finds texts of a chart that overlap or leave the drawing.
package charttest

import (
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The mean width of a character at 13 units, in a wide font (DejaVu Sans), plain and bold.
const (
	plain = 7.6
	bold  = 8.5
)

// drawing is the part of an SVG document that the check reads.
type drawing struct {
	ViewBox string `xml:"viewBox,attr"`
	Texts   []text `xml:"text"`
}

type text struct {
	X       float64 `xml:"x,attr"`
	Y       float64 `xml:"y,attr"`
	Class   string  `xml:"class,attr"`
	Anchor  string  `xml:"text-anchor,attr"`
	Content string  `xml:",chardata"`
}

// box is the area of the text.
func (t text) box() (left, right, top, bottom float64) {
	width := plain * float64(utf8.RuneCountInString(t.Content))
	if strings.Contains(t.Class, "hot") {
		width *= bold / plain
	}
	left = map[string]float64{"start": t.X, "middle": t.X - width/2, "end": t.X - width}[t.Anchor]
	return left, left + width, t.Y - 10, t.Y + 3
}

// Overlaps describes each pair of texts in an SVG drawing that overlap and each text that leaves it.
func Overlaps(svg string) ([]string, error) {
	var d drawing
	if err := xml.Unmarshal([]byte(svg), &d); err != nil {
		return nil, fmt.Errorf("read drawing: %w", err)
	}
	var width, height float64
	if _, err := fmt.Sscanf(d.ViewBox, "0 0 %g %g", &width, &height); err != nil {
		return nil, fmt.Errorf("read viewBox %q: %w", d.ViewBox, err)
	}
	var problems []string
	for i, a := range d.Texts {
		left, right, top, bottom := a.box()
		if left < -1 || right > width+1 || top < -1 || bottom > height+1 {
			problems = append(problems, fmt.Sprintf("%q leaves the drawing: %+v", a.Content, a))
		}
		for _, b := range d.Texts[i+1:] {
			if l, r, t, bo := b.box(); left < r && l < right && top < bo && t < bottom {
				problems = append(problems, fmt.Sprintf("%q and %q overlap", a.Content, b.Content))
			}
		}
	}
	return problems, nil
}
