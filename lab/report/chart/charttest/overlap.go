// Package charttest finds texts of a chart that overlap or leave the drawing.
package charttest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The mean width of a character at 13 units, in a wide font (DejaVu Sans), plain and bold.
const (
	plain = 7.6
	bold  = 8.5
)

// box is the room that a text takes.
type box struct {
	text                     string
	left, right, top, bottom float64
}

// Overlaps describes each pair of texts in an SVG drawing that overlap and each text that leaves it.
func Overlaps(svg string) ([]string, error) {
	boxes, width, height, err := read(svg)
	if err != nil {
		return nil, err
	}
	var problems []string
	for i, a := range boxes {
		if a.left < -1 || a.right > width+1 || a.top < -1 || a.bottom > height+1 {
			problems = append(problems, fmt.Sprintf("%q leaves the drawing: %+v", a.text, a))
		}
		for _, b := range boxes[i+1:] {
			if a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom {
				problems = append(problems, fmt.Sprintf("%q and %q overlap", a.text, b.text))
			}
		}
	}
	return problems, nil
}

func read(svg string) (boxes []box, width, height float64, err error) {
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return boxes, width, height, nil
		}
		if err != nil {
			return nil, 0, 0, fmt.Errorf("read drawing: %w", err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attr := map[string]string{}
		for _, a := range e.Attr {
			attr[a.Name.Local] = a.Value
		}
		switch e.Name.Local {
		case "svg":
			if _, err := fmt.Sscanf(attr["viewBox"], "0 0 %g %g", &width, &height); err != nil {
				return nil, 0, 0, fmt.Errorf("read viewBox %q: %w", attr["viewBox"], err)
			}
		case "text":
			var content string
			if err := d.DecodeElement(&content, &e); err != nil {
				return nil, 0, 0, fmt.Errorf("read text: %w", err)
			}
			b, err := place(content, attr)
			if err != nil {
				return nil, 0, 0, err
			}
			boxes = append(boxes, b)
		}
	}
}

func place(content string, attr map[string]string) (box, error) {
	x, err := strconv.ParseFloat(attr["x"], 64)
	if err != nil {
		return box{}, fmt.Errorf("place %q: %w", content, err)
	}
	y, err := strconv.ParseFloat(attr["y"], 64)
	if err != nil {
		return box{}, fmt.Errorf("place %q: %w", content, err)
	}
	char := plain
	if strings.Contains(attr["class"], "hot") {
		char = bold
	}
	w := char * float64(utf8.RuneCountInString(content))
	left := map[string]float64{"start": x, "middle": x - w/2, "end": x - w}[attr["text-anchor"]]
	return box{content, left, left + w, y - 10, y + 3}, nil
}
