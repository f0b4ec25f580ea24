package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/testenv/reference"
)

const made = "Made from the code by `make docs`.\n"

// TestDropReasons keeps docs/reference/drop-reasons.md.
func TestDropReasons(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Drop reasons\n\n" + made + "\n" +
		"`beeline drops` and `beeline flows` print these words, and `beeline_dropped_packets_total` has them as its label `reason`.\n" +
		"[bpf/README.md](../../bpf/README.md#drop-reasons) names the function that drops.\n\n| reason | meaning, and where to look |\n|---|---|\n")
	reasons := 0
	for r := flow.DropReason(1); !strings.HasPrefix(r.String(), "reason_"); r++ {
		fmt.Fprintf(&page, "| `%s` | %s |\n", r, reference.Cell(r.Meaning()))
		reasons++
	}
	if reasons < 20 {
		t.Fatalf("only %d reasons", reasons)
	}
	reference.Page(t, "..", "drop-reasons.md", page.String())
}

// TestMetrics keeps docs/reference/metrics.md. What an agent serves is compared with the page by test/e2e.
func TestMetrics(t *testing.T) {
	var rows []string
	err := filepath.WalkDir("../internal", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_bpfel.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if row := metric(n); row != "" {
				rows = append(rows, row)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(rows)
	if len(rows) < 30 {
		t.Fatalf("only %d metrics were found: the code makes them in another way", len(rows))
	}
	reference.Page(t, "..", "metrics.md", "# Metrics\n\n"+made+
		"\nThe agent serves them at `/metrics` ([how to scrape](../observe.md#metrics)), beside those of the Go runtime and the process.\n\n"+
		"| metric | labels | meaning |\n|---|---|---|\n"+strings.Join(rows, ""))
}

// metric gives the row of a call of prometheus.NewDesc or NewHistogramVec, or of a literal of options without labels.
func metric(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := selector.X.(*ast.Ident); !ok || x.Name != "prometheus" {
		return ""
	}
	var name, help string
	var labels []string
	for i, argument := range call.Args {
		switch a := argument.(type) {
		case *ast.BasicLit:
			if text, _ := strconv.Unquote(a.Value); i == 0 {
				name = text
			} else {
				help = text
			}
		case *ast.CompositeLit:
			for _, element := range a.Elts {
				switch e := element.(type) {
				case *ast.KeyValueExpr:
					value, ok := e.Value.(*ast.BasicLit)
					if !ok {
						continue
					}
					switch text, _ := strconv.Unquote(value.Value); e.Key.(*ast.Ident).Name {
					case "Name":
						name = text
					case "Help":
						help = text
					}
				case *ast.BasicLit:
					label, _ := strconv.Unquote(e.Value)
					labels = append(labels, "`"+label+"`")
				}
			}
		}
	}
	if !strings.HasPrefix(name, "beeline_") {
		return ""
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, strings.Join(labels, ", "), reference.Cell(help))
}

// TestChartValues keeps docs/reference/chart-values.md.
func TestChartValues(t *testing.T) {
	text, err := os.ReadFile("../deploy/chart/beeline/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values yaml.Node
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString("# Values of the Helm chart\n\n" + made + "\nValues that are flags of the agent have a longer text " +
		"[there](beeline-agent.md).\n\n| value | default | |\n|---|---|---|\n")
	rows := chartValues(&page, "", "", values.Content[0])
	if rows < 30 {
		t.Fatalf("only %d values", rows)
	}
	reference.Page(t, "..", "chart-values.md", page.String())
}

// chartValues writes a row for each value below a mapping, with the comment above it. The only value of a group may have that of
// the group: among several, it could be about any of them.
func chartValues(page *strings.Builder, prefix, above string, mapping *yaml.Node) (rows int) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		comment := strings.ReplaceAll(key.HeadComment, "\n# ", " ")
		if at := strings.LastIndex(comment, "\n\n"); at >= 0 {
			comment = comment[at+2:] // what is above an empty line is about the whole file
		}
		comment = strings.TrimPrefix(comment, "# ")
		if comment == "" && len(mapping.Content) == 2 {
			comment = above
		}
		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && len(value.Content) > 0 {
			rows += chartValues(page, prefix+key.Value+".", comment, value)
			continue
		}
		rows++
		value.HeadComment, value.LineComment, value.FootComment = "", "", ""
		value.Style |= yaml.FlowStyle
		text, err := yaml.Marshal(value)
		if err != nil {
			text = []byte(err.Error())
		}
		shown := "`" + strings.TrimSpace(string(text)) + "`"
		if shown == "`\"\"`" || shown == "`{}`" || shown == "`[]`" {
			shown = ""
		}
		fmt.Fprintf(page, "| `%s` | %s | %s |\n", prefix+key.Value, shown, reference.Cell(comment))
	}
	return rows
}
