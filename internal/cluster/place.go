package cluster

import "fmt"

// place is the position of an object in a file.
type place struct {
	file string
	// lines of the fields that later errors may be about.
	lines map[string]int
}

// of gives "file:line" of a field.
func (p *place) of(field string) string { return fmt.Sprintf("%s:%d", p.file, p.lines[field]) }

// place notes the lines of some fields, so that the document need not be kept.
func (d document) place(fields ...string) *place {
	p := &place{file: d.file, lines: make(map[string]int, len(fields))}
	for _, field := range fields {
		p.lines[field] = lineOf(d.root, field)
	}
	return p
}
