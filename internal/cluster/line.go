package cluster

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lineOf gives the line of a field such as "status.addresses[1].address", or of its nearest existing parent.
func lineOf(root *yaml.Node, path string) int {
	at := root
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next := child(at, step)
		if next == nil {
			break
		}
		if at.Kind == yaml.MappingNode {
			if key := keyNode(at, step); key != nil && next.Line > key.Line {
				// The value begins below its key; the reader looks for the key.
				at = &yaml.Node{Kind: next.Kind, Content: next.Content, Line: key.Line}
				continue
			}
		}
		at = next
	}
	return at.Line
}

// child is the value of a key or the element of an index; nil if there is none.
func child(n *yaml.Node, step string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}

func keyNode(n *yaml.Node, step string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == step {
			return n.Content[i]
		}
	}
	return nil
}
