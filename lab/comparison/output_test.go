package comparison

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// checked are changes with a failure, a pass and an undecidable condition.
func checked(t *testing.T) ([]Change, []Check) {
	t.Helper()
	changes := Builds(benched(map[string]float64{"node": 1, "beeline": 0.9, "old": 1}))
	changes = append(changes, Change{Key: Key{Network: "a|b", Name: "udp_rr", Metric: "rate"}, Quantity: Quantity{Headline: true, Better: "higher"}, Ratio: &Value{Median: 2}})
	var conditions []Condition
	for _, text := range []string{"tcp_rr.ratio<0.98", "map_memory.value>1.1", "udp_rr.ratio>1.5"} {
		c, err := ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		conditions = append(conditions, c)
	}
	list, err := Apply(changes, conditions)
	if err != nil {
		t.Fatal(err)
	}
	return changes, list
}

func TestJUnit(t *testing.T) {
	_, all := checked(t)
	var out bytes.Buffer
	if err := WriteJUnit(&out, all); err != nil {
		t.Fatal(err)
	}
	var got junitReport
	if err := xml.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Tests != 3 || got.Failures != 2 || len(got.Suites) != 3 {
		t.Errorf("%d tests, %d failures, %d suites:\n%s", got.Tests, got.Failures, len(got.Suites), out.String())
	}
	for i, want := range []string{string(Failed), "", string(Undecidable)} {
		kind := ""
		if f := got.Suites[i].Cases[0].Failure; f != nil {
			kind = f.Type
		}
		if kind != want {
			t.Errorf("condition %s: failure %q, want %q", got.Suites[i].Name, kind, want)
		}
	}
}

func TestOpenMetrics(t *testing.T) {
	run := benched(map[string]float64{"node": 1, "beeline": 0.9, "old": 1})
	var out bytes.Buffer
	if err := WriteOpenMetrics(&out, Figures(run), Builds(run)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE beeline_bench_figure gauge\n# HELP beeline_bench_figure ",
		`beeline_bench_figure{network="beeline",name="cni_add",unit="ms",bound="median"} 9.0`,
		`beeline_bench_ratio_to_node{network="beeline",name="tcp_rr",metric="rate",path="cross-node",placement="one-core",procs="1",bound="high"} 0.9`,
		`beeline_bench_change_of_ratio{network="beeline",name="tcp_rr",build="old",metric="rate",`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if !strings.HasSuffix(out.String(), "\n# EOF\n") {
		t.Error("the end is not marked")
	}
	if got := label("name", "a\"b\\c\nd"); got != `name="a\"b\\c\nd"` {
		t.Errorf("label %s", got)
	}
}

func TestComment(t *testing.T) {
	changes, all := checked(t)
	var out bytes.Buffer
	details := func(w io.Writer) error { _, err := io.WriteString(w, "TABLES"); return err }
	if err := WriteComment(&out, changes, all, details); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### Bench: 2 checks fail of 3", "| beeline ÷ old: tcp_rr rate, cross-node, one-core | `tcp_rr.ratio<0.98` | 0.900 (0.900–0.900) |",
		`a\|b: udp_rr`, "too few rounds", "**Worse**", "* beeline ÷ old: tcp_rr rate", "**Better**", "* beeline ÷ old: cni_add: 0.900",
		"<details>", "TABLES",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}
