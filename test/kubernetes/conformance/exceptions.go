package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed exceptions.txt
var exceptionsText string

// excuse is the prefix of all reasons: only a missing kernel feature is accepted.
const excuse = "not on this kernel: "

// readExceptions reads pairs of lines: the name of a test, and the reason why it cannot pass. Empty lines and lines that
// begin with # are comments.
func readExceptions(text string) (map[string]string, error) {
	exceptions := map[string]string{}
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case name == "":
			name = line
		case !strings.HasPrefix(line, excuse):
			return nil, fmt.Errorf("exceptions.txt: the reason of %q does not begin with %q: %s", name, excuse, line)
		default:
			exceptions[name], name = line, ""
		}
	}
	if name != "" {
		return nil, fmt.Errorf("exceptions.txt: %q has no reason", name)
	}
	return exceptions, nil
}
