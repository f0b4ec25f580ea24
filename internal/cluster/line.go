package cluster

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// position is where an object is in a file.
type position struct {
	file string
	// lines of the fields that later errors may be about.
	lines map[string]int
}

// of gives "file:line" of a field.
func (p position) of(field string) string { return fmt.Sprintf("%s:%d", p.file, p.lines[field]) }

// position notes the lines of some fields, so that the document need not be kept.
func (d document) position(fields []string) position {
	p := position{file: d.file, lines: make(map[string]int, len(fields))}
	for _, field := range fields {
		p.lines[field] = lineOf(d.root, field)
	}
	return p
}

// lineOf gives the line of a field such as "status.addresses[1].address", or of its nearest existing parent.
func lineOf(at *yaml.Node, path string) int {
	line := at.Line
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		key, value := child(at, step)
		if value == nil {
			break
		}
		at, line = value, key.Line // a value may begin below its key; the reader looks for the key
	}
	return line
}

// child gives the key and value of that name, or the element of an index twice; nil if there is none.
func child(n *yaml.Node, step string) (key, value *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	}
	return nil, nil
}
