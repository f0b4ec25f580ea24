package datapath_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/flow"
)

const bpfDir = "../../bpf"

// journey is one table of bpf/README.md.
type journey struct {
	title  string
	header []string
	rows   [][]string
}

func readJourneys(t *testing.T) []journey {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(bpfDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []journey
	var title string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			title = heading
			continue
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		var cells []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		if len(all) == 0 || all[len(all)-1].title != title {
			all = append(all, journey{title: title, header: cells})
			continue
		}
		j := &all[len(all)-1]
		j.rows = append(j.rows, cells)
	}
	return all
}

// sources returns the text of each of our C files, by its path below bpf/.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.h", "*.c", "prog/*.h", "lib/*/*.h"} {
		files, err := filepath.Glob(filepath.Join(bpfDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(bpfDir, f)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
	}
	return all
}

var definition = regexp.MustCompile(`(?m)^(?:STAGE|int|(?:static __always_inline|static __noinline|GLOBAL_FN) [\w ]+?\*?) ?\*?(\w+)\([^;{]*\)\n\{\n((?:.*\n)*?)\}`)

// functionsOf returns the functions that a source defines, with their bodies.
func functionsOf(source string) map[string]string {
	all := map[string]string{}
	for _, m := range definition.FindAllStringSubmatch(source, -1) {
		all[m[1]] = m[2]
	}
	return all
}

func code(cell string) string { return strings.Trim(cell, "`") }

// The tables of the README are correct: functions are in their files, programs at their hooks, and drop reasons where
// they are set.
func TestJourneys(t *testing.T) {
	journeys, files := readJourneys(t), sources(t)
	if len(journeys) < 5 {
		t.Fatalf("only %d tables in README.md", len(journeys))
	}
	spec, err := bpf.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []func() (*ebpf.CollectionSpec, error){bpf.LoadDestroy, bpf.LoadSameNode, bpf.LoadSameNodeDestroy} {
		object, err := other()
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(spec.Programs, object.Programs)
	}
	named := map[string]bool{}
	for _, j := range journeys {
		if len(j.header) != 4 || j.header[1] != "function" || j.header[2] != "file" {
			t.Errorf("%s: the columns are %v", j.title, j.header)
			continue
		}
		for _, row := range j.rows {
			function, file := code(row[1]), code(row[2])
			body, ok := functionsOf(files[file])[function]
			if !ok {
				t.Errorf("%s: %s does not define %s", j.title, file, function)
				continue
			}
			named[function] = true
			switch first := code(row[0]); j.header[0] {
			case "hook":
				program := spec.Programs[function]
				if (first != "") != (program != nil) {
					t.Errorf("%s: %s at hook %q: a program and only a program has a hook", j.title, function, first)
				} else if program != nil && !strings.HasSuffix(first, ", "+program.SectionName) {
					t.Errorf("%s: %s is at %q and its section is %s", j.title, function, first, program.SectionName)
				}
			case "reason":
				if !strings.Contains(body, first) {
					t.Errorf("%s: %s does not drop with %s", j.title, function, first)
				}
			}
		}
	}

	// The tables are complete: every program, stage and drop reason occurs.
	for name, text := range files {
		for function := range functionsOf(text) {
			isStage := strings.Contains(text, "STAGE "+function+"(") || spec.Programs[function] != nil
			if isStage && !named[function] {
				t.Errorf("README.md does not list %s in %s", function, name)
			}
		}
	}
	var drops []string
	for _, j := range journeys {
		if j.header[0] == "reason" {
			for _, row := range j.rows {
				drops = append(drops, code(row[0]))
			}
		}
	}
	for reason := range int(bpf.DropReasonDROP_MAX) {
		name := "DROP_" + strings.ToUpper(flow.DropReason(reason).String())
		if reason != int(bpf.DropReasonDROP_NONE) && !strings.Contains(strings.Join(drops, " "), name) {
			t.Errorf("README.md does not list %s", name)
		}
	}
}

// In each journey, every function except the programs is called by an earlier one.
func TestJourneysFollowCalls(t *testing.T) {
	files := sources(t)
	for _, j := range readJourneys(t) {
		if j.header[0] != "hook" {
			continue
		}
		var before string // bodies since the last program
		for _, row := range j.rows {
			function, file := code(row[1]), code(row[2])
			if row[0] != "" {
				before = ""
			} else if !strings.Contains(before, function+"(") {
				t.Errorf("%s: nothing before %s calls it", j.title, function)
			}
			before += functionsOf(files[file])[function]
		}
	}
}
