package comparison

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// family is one metric family of OpenMetrics with its samples.
type family struct {
	name, help string
	samples    []string
}

// add adds a sample for the median of a value, and for each bound of its interval.
func (f *family) add(v *Value, labels ...string) {
	if v == nil {
		return
	}
	for _, s := range []struct {
		quantile string
		value    *float64
	}{{"median", &v.Median}, {"low", v.Low}, {"high", v.High}} {
		if s.value != nil {
			text := strings.Join(append(slices.Clone(labels), label("bound", s.quantile)), ",")
			f.samples = append(f.samples, fmt.Sprintf("%s{%s} %s\n", f.name, text, strconv.FormatFloat(*s.value, 'g', -1, 64)))
		}
	}
}

// WriteOpenMetrics writes the figures of a run in the OpenMetrics text format 1.0, and changes if there are any. All are
// gauges; the label bound tells the median from the bounds of its interval. The label unit has the unit, as figures of one
// family differ in it.
func WriteOpenMetrics(w io.Writer, figures []Figure, changes []Change) error {
	families := []*family{
		{name: "beeline_bench_figure", help: "A figure of the run, in the unit of the label unit."},
		{name: "beeline_bench_ratio_to_node", help: "The figure divided by that of the node, within a round."},
		{name: "beeline_bench_change", help: "The figure of run B divided by that of run A."},
		{name: "beeline_bench_change_of_ratio", help: "The ratio to the node of run B divided by that of run A."},
	}
	for _, f := range figures {
		families[0].add(&f.Value, append(f.labels(), label("unit", f.Unit))...)
		families[1].add(f.Ratio, f.labels()...)
	}
	for _, c := range changes {
		families[2].add(c.Value, c.labels()...)
		families[3].add(c.Ratio, c.labels()...)
	}
	for _, f := range families {
		if len(f.samples) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "# TYPE %s gauge\n# HELP %s %s\n%s", f.name, f.name, f.help, strings.Join(f.samples, "")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, "# EOF")
	return err
}

// labels are those of a figure; what the figure does not have is left out.
func (k Key) labels() []string {
	list := []string{label("network", k.Network), label("name", k.Name)}
	for _, l := range []struct{ name, value string }{
		{"build", k.Build}, {"metric", k.Metric}, {"path", string(k.Path)}, {"placement", string(k.Placement)},
	} {
		if l.value != "" {
			list = append(list, label(l.name, l.value))
		}
	}
	for _, l := range []struct {
		name  string
		value int
	}{{"procs", k.Procs}, {"objects", k.Objects}} {
		if l.value > 0 {
			list = append(list, label(l.name, strconv.Itoa(l.value)))
		}
	}
	return list
}

// label quotes a value as OpenMetrics wants it.
func label(name, value string) string {
	return name + `="` + strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(value) + `"`
}
