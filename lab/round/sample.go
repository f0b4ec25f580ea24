package round

import (
	"time"

	"github.com/beeline-cni/beeline/lab/procstat"
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

// CPUWindow reads /proc/stat at both ends of the measured traffic.
type CPUWindow struct {
	before, after map[int]procstat.Ticks
	began, ended  time.Time
	// Err is why the window has no CPU time.
	Err error
}

// Mark reads the CPU time at the beginning or the end of the window.
func (w *CPUWindow) Mark(end bool) {
	stat, err := procstat.Read()
	if err != nil {
		w.Err = err
	}
	if end {
		w.after, w.ended = stat, time.Now()
	} else {
		w.before, w.began = stat, time.Now()
	}
}

// Seconds is how long the window was.
func (w *CPUWindow) Seconds() float64 { return w.ended.Sub(w.began).Seconds() }

// CPU is what passed on these CPUs.
func (w *CPUWindow) CPU(cpus ...int) result.CPU {
	return procstat.Delta(w.before, w.after, cpus...).CPUTime()
}
