package cluster

import (
	"context"
	"slices"

	"github.com/beeline-cni/beeline/lab/worker"
)

// session is the worker of one pod. The stream to it goes through the API server and may break: it is opened again, and
// what was served is served again. It belongs to one goroutine.
type session struct {
	open func(context.Context) (*worker.Conn, error)

	conn   *worker.Conn
	served []worker.Serve
}

// call asks the worker. A broken stream is an error of this call; the next one has a new worker.
func (s *session) call(ctx context.Context, r worker.Request) (worker.Reply, error) {
	if err := s.ready(ctx); err != nil {
		return worker.Reply{}, err
	}
	return s.conn.Call(ctx, r)
}

// serve has the worker serve, now and after every break.
func (s *session) serve(ctx context.Context, request worker.Serve) error {
	if slices.ContainsFunc(s.served, func(r worker.Serve) bool { return r.Workload == request.Workload && r.Procs == request.Procs }) {
		return nil
	}
	if _, err := s.call(ctx, worker.Request{Serve: &request}); err != nil {
		return err
	}
	s.served = append(s.served, request)
	return nil
}

// ready opens the stream where there is none.
func (s *session) ready(ctx context.Context) error {
	if s.conn != nil && !s.conn.Broken() {
		return nil
	}
	if s.conn != nil {
		_ = s.conn.Close() // its error was that of the call it broke in
	}
	// The worker outlives the call: session.close ends it.
	conn, err := s.open(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	s.conn = conn
	for i := range s.served {
		if _, err := conn.Call(ctx, worker.Request{Serve: &s.served[i]}); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) close() {
	if s.conn != nil {
		_ = s.conn.Close() // the pod is deleted next
	}
}
