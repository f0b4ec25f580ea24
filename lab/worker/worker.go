package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// worker is one end of measurements.
type worker struct {
	netns   testbed.Netns
	end     End // where it serves
	servers *workload.Servers
	control *control
}

// Loop answers requests until the input or the context ends, and then ends every server. netns is where servers
// and clients run.
func Loop(ctx context.Context, netns testbed.Netns, in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &worker{netns: netns}
	defer func() { err = errors.Join(err, w.close()) }()
	requests := make(chan Request)
	unread := make(chan error, 1)
	go func() {
		// When the client goes away, everything ends.
		defer cancel()
		decoder := json.NewDecoder(in)
		for {
			var r Request
			if err := decoder.Decode(&r); err != nil {
				if !errors.Is(err, io.EOF) {
					unread <- fmt.Errorf("read request: %w", err)
				}
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	encoder := json.NewEncoder(out)
	for {
		select {
		case r := <-requests:
			if err := encoder.Encode(w.answer(ctx, r)); err != nil {
				return fmt.Errorf("send reply: %w", err)
			}
		case <-ctx.Done():
			select {
			case err := <-unread:
				return err
			default:
				return nil
			}
		}
	}
}

func (w *worker) close() error {
	var errs []error
	if w.control != nil {
		errs = append(errs, w.control.Close())
	}
	if w.servers != nil {
		errs = append(errs, w.servers.Close())
	}
	return errors.Join(errs...)
}

func (w *worker) answer(ctx context.Context, r Request) (reply Reply) {
	var err error
	switch {
	case r.Serve != nil:
		err = w.serve(ctx, *r.Serve)
	case r.Run != nil:
		reply.Run, err = w.run(ctx, *r.Run)
	case r.Probe != nil:
		reply.Probe, err = probe(ctx, w.netns, *r.Probe)
	case r.CPU:
		var all procstat.Ticks
		all, _, err = readCPU(nil)
		reply.CPU = &all
	case r.Facts != nil:
		reply.Facts = facts(ctx, w.netns, *r.Facts)
	default:
		err = errors.New("empty request")
	}
	if err != nil {
		return Reply{Error: err.Error()}
	}
	return reply
}

// installed returns the workload of a name, if its tools are there.
func installed(name string) (workload.Workload, error) {
	list, err := workload.Select([]string{name})
	if err != nil {
		return nil, err
	}
	if m := list[0].Missing(); m != "" {
		return nil, errors.New(m)
	}
	return list[0], nil
}

func (w *worker) serve(ctx context.Context, s Serve) error {
	if w.servers == nil {
		servers := workload.NewServers(pinned(w.netns, s.CPU), s.Target)
		control, err := listenControl(ctx, w.netns, s, servers)
		if err != nil {
			return err
		}
		w.end, w.servers, w.control = s.End, servers, control
	}
	if s.Workload == "" {
		return nil
	}
	l, err := installed(s.Workload)
	if err != nil {
		return err
	}
	return l.Serve(ctx, w.servers, s.Procs)
}

func (w *worker) run(ctx context.Context, r Run) (*Sample, error) {
	l, err := installed(r.Workload)
	if err != nil {
		return nil, err
	}
	far, err := dialControl(ctx, w.netns, r.End)
	if err != nil {
		return nil, err
	}
	defer far.Close()
	var near procstat.Window
	out, err := l.Run(ctx, workload.Request{
		Client: pinned(w.netns, r.CPU), Server: far, Procs: r.Procs, Length: r.Length, Turn: r.Turn,
		Window: func(end bool) {
			near.Mark(end)
			far.mark()
		},
	})
	if err != nil {
		return nil, err
	}
	s := &Sample{Outcome: out}
	s.Window = near.Seconds()
	server, serverWindow, err := far.passed()
	if err = errors.Join(near.Err, err); err != nil {
		s.NoCPU = err.Error()
		return s, nil
	}
	s.ClientCPU, s.ServerCPU, s.ServerWindow = near.Passed(only(r.CPU)...), server, serverWindow.Seconds()
	return s, nil
}

// readCPU reads one CPU, or adds up all CPUs of the machine, and says when.
func readCPU(cpu *int) (procstat.Ticks, time.Time, error) {
	cpus, err := procstat.Read()
	now := time.Now()
	return procstat.Delta(nil, cpus, only(cpu)...), now, err
}

// only is the list of one CPU, empty where any is meant.
func only(cpu *int) []int {
	if cpu == nil {
		return nil
	}
	return []int{*cpu}
}

// pinned is the namespace on one CPU, where one is given.
func pinned(netns testbed.Netns, cpu *int) testbed.Netns {
	if cpu == nil {
		return netns
	}
	return netns.On(*cpu)
}
