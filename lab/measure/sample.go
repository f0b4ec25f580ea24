package measure

import (
	"context"
	"time"

	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/workload"
)

// newSample is one of a cell that begins now.
func newSample(cell Cell) result.Sample {
	return result.Sample{
		Workload: cell.Workload.Info().Name, Path: cell.Path, Placement: cell.Placement, Procs: cell.Procs, Started: time.Now(),
	}
}

// sample runs one cell with the testbed's own server of the path.
func (b *bench) sample(ctx context.Context, l *Testbed, cell Cell, length time.Duration) result.Sample {
	return l.sample(ctx, cell, workload.Request{Server: l.servers[cell.Path], Procs: cell.Procs, Length: length})
}

// sample runs one cell; the client's place and the window are filled in. What goes wrong is in the sample's Error.
func (l *Testbed) sample(ctx context.Context, cell Cell, request workload.Request) result.Sample {
	s := newSample(cell)
	if err := l.unserved[cell.key()]; err != nil {
		s.Error = err.Error()
		return s
	}
	client, server, err := cpus(cell.Placement, allowed())
	if err != nil {
		s.Error = err.Error()
		return s
	}
	watched := []int{server}
	if client != server {
		watched = append(watched, client)
	}
	var window cpuWindow
	request.Client, request.Window = l.lab.Place(l.client).On(client), window.mark
	out, err := cell.Workload.Run(ctx, request)
	s.Values, s.Latency, s.Command = out.Values, out.Latency, out.Command
	if err == nil {
		err = window.err
	}
	if err != nil {
		s.Error, s.Values, s.Latency = err.Error(), nil, nil
		return s
	}
	if s.Seconds = out.Seconds; s.Seconds == 0 {
		s.Seconds = window.ended.Sub(window.began).Seconds()
	}
	s.CPU = procstat.Delta(window.before, window.after, watched...).CPUTime()
	return s
}

// cpuWindow reads /proc/stat at both ends of the measured traffic.
type cpuWindow struct {
	before, after map[int]procstat.Ticks
	began, ended  time.Time
	err           error
}

func (w *cpuWindow) mark(end bool) {
	stat, err := procstat.Read()
	if err != nil {
		w.err = err
	}
	if end {
		w.after, w.ended = stat, time.Now()
	} else {
		w.before, w.began = stat, time.Now()
	}
}
