package main

import (
	"testing"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/testenv/reference"
)

// TestReference keeps docs/reference/beeline.md equal to the help of the program.
func TestReference(t *testing.T) {
	reference.Page(t, "../..", "beeline.md", reference.Commands(newRootCommand(cli.Env{})))
}
