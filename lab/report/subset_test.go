package report

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
)

// thin removes each element of a list with the probability p.
func thin[T any](random *rand.Rand, p float64, list []T) []T {
	var kept []T
	for _, e := range list {
		if random.Float64() >= p {
			kept = append(kept, e)
		}
	}
	return kept
}

// Any part may be missing from a file: every rendering works, and the page stays well-formed.
func TestAnySubsetRenders(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			run := synthetic(1 + random.IntN(8))
			p := func() float64 { return []float64{0, 0.3, 0.9, 1}[random.IntN(4)] }
			run.Networks = thin(random, p(), run.Networks)
			run.Workloads = thin(random, p(), run.Workloads)
			run.Rounds = thin(random, p(), run.Rounds)
			run.Samples = thin(random, p(), run.Samples)
			run.Summary = thin(random, p(), run.Summary)
			run.Footprints = thin(random, p(), run.Footprints)
			run.Programs = thin(random, p(), run.Programs)
			run.CrossChecks = thin(random, p(), run.CrossChecks)
			for i := range run.Summary {
				s := &run.Summary[i]
				if random.Float64() < 0.2 {
					s.RatioLow, s.RatioHigh = nil, nil
				}
				if random.Float64() < 0.2 {
					s.Ratio, s.RatioLow, s.RatioHigh = nil, nil, nil
				}
				if random.Float64() < 0.1 {
					s.Low, s.High = nil, nil
				}
			}
			for i := range run.Samples {
				if random.Float64() < 0.1 {
					run.Samples[i].CPU, run.Samples[i].Seconds = result.CPU{}, 0
				}
				if h := run.Samples[i].Latency; h != nil && random.Float64() < 0.1 {
					h.Count = h.Count[:len(h.Count)/2]
				}
			}
			renders(t, run)
		})
	}
}

func TestEmptyRunRenders(t *testing.T) {
	renders(t, &result.Run{})
}

func TestZeroFiguresRender(t *testing.T) {
	run := synthetic(6)
	zero := 0.0
	for i := range run.Summary {
		run.Summary[i].Median, run.Summary[i].Ratio, run.Summary[i].RatioLow = 0, &zero, &zero
	}
	for i := range run.Samples {
		for name := range run.Samples[i].Values {
			run.Samples[i].Values[name] = 0
		}
	}
	renders(t, run)
}

func renders(t *testing.T, run *result.Run) {
	t.Helper()
	other := synthetic(2)
	for name, d := range map[string]*Document{"report": New(run), "compare": Compare(run, other), "compared": Compare(other, run)} {
		for rendering, text := range renderings(t, d) {
			if text == "" {
				t.Errorf("%s as %s is empty", name, rendering)
			}
		}
	}
}
