package main

import (
	"testing"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/testenv/reference"
)

// TestReference keeps docs/reference/beeline-agent.md equal to the help of the program.
func TestReference(t *testing.T) {
	reference.Page(t, "../..", "beeline-agent.md", reference.Commands(newRootCommand(cli.Env{})))
}
