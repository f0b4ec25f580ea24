package round

import (
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/workload"
)

// NewSample is one of a cell that begins now.
func NewSample(cell Cell) result.Sample {
	return result.Sample{
		Workload: cell.Workload.Info().Name, Path: cell.Path, Placement: cell.Placement, Procs: cell.Procs, Started: time.Now(),
	}
}

// Failed is the sample with an error instead of figures.
func Failed(s result.Sample, err error) result.Sample {
	s.Error, s.Values, s.Latency = err.Error(), nil, nil
	return s
}

// Fill puts the outcome of a workload into a sample.
func Fill(s *result.Sample, out workload.Outcome) {
	s.Values, s.Latency, s.Command, s.Seconds = out.Values, out.Latency, out.Command, out.Seconds
}
