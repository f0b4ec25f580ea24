// Package reference keeps the pages of docs/reference equal to the code that they describe: tests compare them, and make docs
// (the flag -update) writes them.
package reference

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the pages of docs/reference instead of comparing them")

// Page compares a page below docs/reference with what the code says, or writes it with -update. root is the path of the
// repository from the test's directory.
func Page(t *testing.T, root, name, want string) {
	t.Helper()
	path := filepath.Join(root, "docs", "reference", name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the code says: run make docs", path)
	}
}

// Commands is the page of a program: a section for each command with its usage, its text and its flags.
func Commands(program *cobra.Command) string {
	var page strings.Builder
	fmt.Fprintf(&page, "# %s\n\n%s\n\nMade from the program's help by `make docs`.\n", program.Name(), sentence(program.Short))
	section(&page, program)
	return page.String()
}

func section(page *strings.Builder, command *cobra.Command) {
	if command.Runnable() && !command.HasSubCommands() {
		fmt.Fprintf(page, "\n## %s\n\n", command.CommandPath())
		text := command.Long
		if text == "" {
			text = command.Short
		}
		fmt.Fprintf(page, "%s\n\n```\n%s\n```\n", sentence(text), command.UseLine())
		flags(page, command.NonInheritedFlags())
	}
	for _, c := range command.Commands() {
		if !c.Hidden && c.Name() != "help" && c.Name() != "completion" {
			section(page, c)
		}
	}
}

func sentence(text string) string {
	if text = strings.TrimSpace(text); text != "" && !strings.ContainsAny(text[len(text)-1:], ".:!?)") {
		text += "."
	}
	return text
}

func flags(page *strings.Builder, set *pflag.FlagSet) {
	host, _ := os.Hostname()
	var rows []string
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		value := ""
		switch {
		case f.DefValue == host && host != "":
			value = "the host name"
		case f.DefValue != "" && f.DefValue != "[]":
			value = "`" + f.DefValue + "`"
		}
		_, usage := pflag.UnquoteUsage(f)
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", name, value, Cell(usage)))
	})
	if len(rows) > 0 {
		fmt.Fprintf(page, "\n| flag | default | |\n|---|---|---|\n%s", strings.Join(rows, ""))
	}
}

// Cell is a text as one cell of a table.
func Cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
