package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

// group is a set of processes with a common start: they are started blocked, on their CPU and in their
// namespace, and released at once. Each is a shell that waits for its standard input to end and then
// becomes the tool, so what differs between them after the release is one exec.
type group []*member

type member struct {
	*exec.Cmd
	name   string
	gate   io.WriteCloser
	output bytes.Buffer
}

// waitAndBecome reads until end of file (the gate's closing) and becomes the command in its arguments.
const waitAndBecome = `read -r _; exec "$@" </dev/null`

// newGroup starts the commands blocked. The caller must call wait.
func newGroup(netns testbed.Netns, commands [][]string) (g group, err error) {
	for _, command := range commands {
		m := &member{name: command[0], Cmd: exec.Command("/bin/sh", append([]string{"-c", waitAndBecome, "sh"}, command...)...)}
		m.WaitDelay = time.Second
		m.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		m.Stdout, m.Stderr = &m.output, &m.output
		if m.gate, err = m.StdinPipe(); err == nil {
			err = netns.Start(m.Cmd)
		}
		if err != nil {
			if m.gate != nil {
				m.gate.Close()
			}
			g.kill()
			_, _ = g.wait(context.Background())
			return nil, fmt.Errorf("run %s: %w", m.name, err)
		}
		g = append(g, m)
	}
	return g, nil
}

// release lets all processes go.
func (g group) release() {
	for _, m := range g {
		_ = m.gate.Close() // it may be closed
	}
}

// untilHandled waits until every process has a handler for a signal or has ended. A signal sent before would
// end the process, as a signal without a handler does.
func (g group) untilHandled(ctx context.Context, s syscall.Signal) {
	for _, m := range g {
		for {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.Process.Pid))
			if err != nil || handles(string(status), s) || wait.For(ctx, time.Millisecond) != nil {
				break
			}
		}
	}
}

// handles reads in the format of /proc/PID/status whether a process has a handler for a signal. One that has
// ended counts as if it had: there is nothing to wait for.
func handles(status string, s syscall.Signal) bool {
	for _, line := range strings.Split(status, "\n") {
		if state, ok := strings.CutPrefix(line, "State:"); ok && strings.HasPrefix(strings.TrimSpace(state), "Z") {
			return true
		}
		if mask, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			caught, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && caught&(1<<(s-1)) != 0
		}
	}
	return false
}

func (g group) signal(s syscall.Signal) {
	for _, m := range g {
		_ = m.Process.Signal(s) // it may have ended
	}
}

func (g group) kill() {
	for _, m := range g {
		_ = syscall.Kill(-m.Process.Pid, syscall.SIGKILL)
	}
}

// wait returns the output of each process when all have ended; when the context ends first they are killed.
func (g group) wait(ctx context.Context) ([]string, error) {
	g.release()
	stop := context.AfterFunc(ctx, g.kill)
	defer stop()
	var outputs []string
	var errs []error
	for _, m := range g {
		err := m.Wait()
		text := m.output.String()
		outputs = append(outputs, text)
		if err != nil {
			errs = append(errs, fmt.Errorf("run %s: %w: %s", m.name, err, lastLines(text)))
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("run %s: %w", g[0].name, ctx.Err())
	}
	return outputs, errors.Join(errs...)
}

// lastLines keeps messages short: what a tool says last is why it ended.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// firstLines keeps messages short: what a server says first is why it does not start, and then comes its usage.
func firstLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[:min(2, len(lines))], "; ")
}
