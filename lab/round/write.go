package round

import (
	"bytes"
	"errors"
	"fmt"
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
	text, err := benchmark(run)
	if err != nil {
		return fmt.Errorf("write benchmark format: %w", err)
	}
	return errors.Join(file.WriteJSON(filepath.Join(dir, result.FileName), run), file.Replace(filepath.Join(dir, BenchmarkFile), text))
}

// benchmark has the kept samples in the Go benchmark format, one line for each. The network is a part of the name, so
// `benchstat -col /network benchmark.txt` compares networks, and benchstat of two files two runs.
func benchmark(run *result.Run) ([]byte, error) {
	discarded := map[int]bool{}
	for _, r := range run.Rounds {
		discarded[r.Index] = r.Discarded != ""
	}
	var text bytes.Buffer
	for _, m := range result.Metrics {
		if m.BenchUnit != "" {
			fmt.Fprintf(&text, "Unit %s better=%s assume=nothing\n", m.BenchUnit, m.Better)
		}
	}
	fmt.Fprintf(&text, "kernel: %s\ncpu: %s\nbeeline: %s\nmtu: %d\n", run.Environment.Kernel, run.Environment.CPU, run.Version, run.Settings.MTU)
	out := benchfmt.NewWriter(&text)
	for _, s := range run.Samples {
		if s.Error != "" || s.Discarded != "" || discarded[s.Round] {
			continue
		}
		r := &benchfmt.Result{Name: benchName(s), Iters: 1}
		for _, m := range result.Metrics {
			if v, ok := s.Values[m.Name]; ok && m.BenchUnit != "" {
				r.Values = append(r.Values, benchfmt.Value{Value: v, Unit: m.BenchUnit})
			}
		}
		if len(r.Values) == 0 {
			continue
		}
		if err := out.Write(r); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
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
