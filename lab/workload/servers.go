package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Servers are the server processes in one pod. Close ends them. Methods may be called from several goroutines.
type Servers struct {
	target Target
	netns  testbed.Netns

	mu      sync.Mutex
	running map[string]*server
}

type server struct {
	*testbed.Process
	output *bytes.Buffer
}

// NewServers starts nothing yet. netns should have a CPU: servers stay on it.
func NewServers(netns testbed.Netns, target Target) *Servers {
	return &Servers{target: target, netns: netns, running: map[string]*server{}}
}

// Target is where the servers listen, or will.
func (s *Servers) Target() Target { return s.target }

// EndTests ends the server's halves of netperf tests.
func (s *Servers) EndTests() {
	for _, child := range children(s.pid(netserver)) {
		_ = syscall.Kill(child, syscall.SIGALRM) // it may have ended
	}
}

// startTimeout is how long a server may take until it listens.
const startTimeout = 5 * time.Second

// start runs a server once under a name and waits until listening says so.
func (s *Servers) start(ctx context.Context, name string, listening func() bool, program string, args ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[name] != nil {
		return nil
	}
	output := &bytes.Buffer{}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.WaitDelay = time.Second
	// Servers fork for each client; the group is what Close ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process, err := s.netns.Background(cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	srv := &server{process, output}
	s.running[name] = srv
	deadline := time.Now().Add(startTimeout)
	for !listening() {
		select {
		case <-srv.Ended:
			delete(s.running, name)
			return fmt.Errorf("start %s: ended at once: %s", name, firstLines(srv.output.String()))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("start %s: not listening after %v", name, startTimeout)
		}
	}
	return nil
}

// pid is the process id of a running server, 0 where there is none of that name.
func (s *Servers) pid(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if srv := s.running[name]; srv != nil {
		return srv.Cmd.Process.Pid
	}
	return 0
}

// listens reports whether something accepts connections on a TCP port, by looking at the socket table rather
// than by connecting: netserver would take the connection for a test.
func (s *Servers) listens(port int) func() bool {
	return func() bool {
		found := false
		_ = s.netns.Do(func() error {
			// thread-self, because /proc/net is that of the main thread's namespace
			for _, table := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
				data, err := os.ReadFile(table)
				found = found || err == nil && hasListener(string(data), port)
			}
			return nil
		})
		return found
	}
}

// hasListener looks for a socket in state LISTEN (0A) in the format of /proc/net/tcp.
func hasListener(table string, port int) bool {
	suffix := fmt.Sprintf(":%04X", port)
	for _, line := range strings.Split(table, "\n") {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], suffix) && f[3] == "0A" {
			return true
		}
	}
	return false
}

// Close ends every server and waits for its end.
func (s *Servers) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for name, srv := range s.running {
		err := syscall.Kill(-srv.Cmd.Process.Pid, syscall.SIGKILL)
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("end %s: %w", name, err))
			continue
		}
		<-srv.Ended
		delete(s.running, name)
	}
	return errors.Join(errs...)
}

// children are the processes that a process has forked and that still run.
func children(pid int) []int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(data)) {
		if child, err := strconv.Atoi(f); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}
