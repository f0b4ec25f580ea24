package cluster

import "fmt"

// position is where an object is in a file.
type position struct {
	file string
	// lines of the fields that later errors may be about.
	lines map[string]int
}

// of gives "file:line" of a field.
func (p *position) of(field string) string { return fmt.Sprintf("%s:%d", p.file, p.lines[field]) }

// position notes the lines of some fields, so that the document need not be kept.
func (d document) position(fields ...string) *position {
	p := &position{file: d.file, lines: make(map[string]int, len(fields))}
	for _, field := range fields {
		p.lines[field] = lineOf(d.root, field)
	}
	return p
}
