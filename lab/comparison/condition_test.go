package comparison

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
)

func TestParseConditionRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "neither < nor >",
		"tcp_rr.ratio=0.98":             "neither < nor >",
		"tcp_rr.ratio<":                 "not a number",
		"tcp_rr.ratio<NaN":              "not a number",
		"tcp_rr.ratio<-1":               "not a number",
		"tcp_rr.ratio<0.98 or so":       "not a number",
		"tcp_rr<0.98":                   "does not end in",
		"tcp_rr.median<0.98":            "does not end in",
		".ratio<1":                      "no name",
		"{path=same-node}.ratio<1":      "no name",
		"tcp_rr{path=same-node.ratio<1": "{ without }",
		"tcp_rr{node=n1}.ratio<1":       "one of the labels build, metric, network",
		"tcp_rr{path}.ratio<1":          "LABEL=VALUE",
		"tcp_rr{path=a,path=b}.ratio<1": "twice",
		"tcp_rr{network=[}.ratio<1":     "pattern",
	} {
		if _, err := ParseCondition(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "condition") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestApply(t *testing.T) {
	of := func(network, name, metric string, headline bool, ratio, value *Value) Change {
		return Change{Key: Key{Network: network, Name: name, Metric: metric, Path: result.CrossNode, Procs: 1}, Quantity: Quantity{Headline: headline}, Ratio: ratio, Value: value}
	}
	v := func(median, low, high float64) *Value { return &Value{Median: median, Low: &low, High: &high} }
	changes := []Change{
		of("node", "tcp_rr", result.Rate, true, nil, v(0.5, 0.4, 0.6)),
		of("beeline", "tcp_rr", result.Rate, true, v(0.97, 0.96, 0.979), v(0.9, 0.8, 1.2)),
		of("ptp", "tcp_rr", result.Rate, true, v(0.97, 0.96, 0.981), v(1, 0.9, 1.1)),
		of("beeline", "tcp_rr", result.RTTP99, false, nil, &Value{Median: 1.2, Once: true}),
		of("beeline", "udp_rr", result.Rate, true, &Value{Median: 0.5}, &Value{Median: 0.5}),
		of("beeline", MapMemory, "", true, nil, &Value{Median: 1.3, Once: true}),
	}
	for text, want := range map[string]string{
		"tcp_rr.ratio<0.98":                         "failed passed", // the whole interval, or it does not count
		"tcp_rr{network=beeline}.ratio<0.98":        "failed",
		"tcp_rr{network=p*}.ratio < 0.98":           "passed",
		"*.ratio<0.9":                               "passed passed undecidable",
		"tcp_rr{path=cross-node,procs=1}.value<0.7": "failed passed passed",
		"tcp_rr{metric=rtt_p99}.value>1.1":          "failed",
		"tcp_rr{metric=*}.value>1.25":               "passed passed passed passed",
		"map_memory.value>1.25":                     "failed",
		"map_memory.value>1.35":                     "passed",
		"tcp_rr{path=same-node}.ratio<0.98":         "condition \"tcp_rr{path=same-node}.ratio<0.98\" is about no figure of the comparison",
		"map_memory.ratio<2":                        "condition \"map_memory.ratio<2\" is about no figure of the comparison",
	} {
		c, err := ParseCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := Apply(changes, []Condition{c})
		var outcomes []string
		for _, j := range got {
			outcomes = append(outcomes, string(j.Outcome))
		}
		text := strings.Join(outcomes, " ")
		if err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%s: %q, want %q", c, text, want)
		}
	}
}
