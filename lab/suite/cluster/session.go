package cluster

import (
	"context"
	"slices"
	"sync"

	"github.com/beeline-cni/beeline/lab/worker"
)

// session is the worker of one pod. The stream to it goes through the API server and may break: it is opened again, and
// what was served is served again.
type session struct {
	open func(context.Context) (*worker.Conn, error)

	mu     sync.Mutex
	conn   *worker.Conn
	served []worker.Serve
}

// call asks the worker. A broken stream is an error of this call; the next one has a new worker.
func (s *session) call(ctx context.Context, r worker.Request) (worker.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return worker.Reply{}, err
	}
	return s.conn.Call(ctx, r)
}

// serve has the worker serve, now and after every break.
func (s *session) serve(ctx context.Context, request worker.Serve) error {
	if s.serves(request) {
		return nil
	}
	if _, err := s.call(ctx, worker.Request{Serve: &request}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = append(s.served, request)
	return nil
}

func (s *session) serves(request worker.Serve) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.served, func(r worker.Serve) bool { return r.Workload == request.Workload && r.Procs == request.Procs })
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close() // the pod is deleted next
	}
}
