package round

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/lab/result"
	"golang.org/x/perf/benchfmt"
)

// BenchmarkFile is written beside results.json.
const BenchmarkFile = "benchmark.txt"

// Save writes results.json and benchmark.txt into a directory, which it makes. Files appear whole or not at all.
func Save(dir string, run *result.Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make results directory: %w", err)
	}
	data, err := json.MarshalIndent(run, "", " ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	write := func(name string, data []byte) error {
		if err := file.Replace(filepath.Join(dir, name), data); err != nil {
			return fmt.Errorf("write results: %w", err)
		}
		return nil
	}
	if err := write(result.FileName, append(data, '\n')); err != nil {
		return err
	}
	var text strings.Builder
	if err := WriteBenchmark(&text, run); err != nil {
		return err
	}
	return write(BenchmarkFile, []byte(text.String()))
}

// benchUnits returns the units of the metrics in the Go benchmark format, where a unit is one word and names
// what is counted. Metrics that are not here do not appear in it.
var benchUnits = map[string]string{
	result.Throughput:  "Gbit/s",
	result.Rate:        "trans/s",
	result.RTT:         "rtt-µs",
	result.RTTP50:      "p50-rtt-µs",
	result.RTTP90:      "p90-rtt-µs",
	result.RTTP99:      "p99-rtt-µs",
	result.RTTP999:     "p99.9-rtt-µs",
	result.Loss:        "loss-%",
	result.Retransmits: "retransmits",
}

// WriteBenchmark writes the kept samples in the Go benchmark format, one line for each. The network is a
// part of the name, so `benchstat -col /network benchmark.txt` compares networks, and benchstat of two files two runs.
func WriteBenchmark(w io.Writer, run *result.Run) error {
	discarded := map[int]bool{}
	for _, r := range run.Rounds {
		discarded[r.Index] = r.Discarded != ""
	}
	for _, m := range result.Metrics {
		if unit, ok := benchUnits[m.Name]; ok {
			if _, err := fmt.Fprintf(w, "Unit %s better=%s assume=nothing\n", unit, m.Better); err != nil {
				return err
			}
		}
	}
	for _, c := range [][2]string{
		{"kernel", run.Environment.Kernel}, {"cpu", run.Environment.CPU}, {"beeline", run.Version}, {"mtu", fmt.Sprint(run.Settings.MTU)},
	} {
		if _, err := fmt.Fprintf(w, "%s: %s\n", c[0], c[1]); err != nil {
			return err
		}
	}
	out := benchfmt.NewWriter(w)
	for _, s := range run.Samples {
		if s.Error != "" || s.Discarded != "" || discarded[s.Round] {
			continue
		}
		r := &benchfmt.Result{Name: benchName(s), Iters: 1}
		for _, m := range result.Metrics {
			v, ok := s.Values[m.Name]
			if unit := benchUnits[m.Name]; ok && unit != "" {
				r.Values = append(r.Values, benchfmt.Value{Value: v, Unit: unit})
			}
		}
		if len(r.Values) == 0 {
			continue
		}
		if err := out.Write(r); err != nil {
			return fmt.Errorf("write benchmark format: %w", err)
		}
	}
	return nil
}

func benchName(s result.Sample) benchfmt.Name {
	var words []string
	for _, word := range strings.Split(s.Workload, "_") {
		words = append(words, strings.ToUpper(word[:1])+word[1:])
	}
	return benchfmt.Name(slices.Concat(
		[]byte(strings.Join(words, "")),
		[]byte("/network="+strings.ReplaceAll(s.Network, "/", ":")), // a slash begins the next part of a name
		[]byte("/path="+string(s.Path)), []byte("/placement="+string(s.Placement)), fmt.Appendf(nil, "/procs=%d", s.Procs),
	))
}
