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
type group struct {
	commands [][]string
	cmds     []*exec.Cmd
	gates    []io.WriteCloser
	output   []*bytes.Buffer
}

// waitAndBecome reads until end of file (the gate's closing) and becomes the command in its arguments.
const waitAndBecome = `read -r _; exec "$@" </dev/null`

// newGroup starts the commands blocked. The caller must call wait.
func newGroup(netns testbed.Netns, commands [][]string) (g *group, err error) {
	g = &group{commands: commands}
	defer func() {
		if err != nil {
			g.kill()
			_, _ = g.wait(context.Background())
		}
	}()
	for _, command := range commands {
		cmd := exec.Command("/bin/sh", append([]string{"-c", waitAndBecome, "sh"}, command...)...)
		cmd.WaitDelay = time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		buffer := &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = buffer, buffer
		gate, err := cmd.StdinPipe()
		if err != nil {
			return g, fmt.Errorf("run %s: %w", command[0], err)
		}
		if err := netns.Start(cmd); err != nil {
			gate.Close()
			return g, fmt.Errorf("run %s: %w", command[0], err)
		}
		g.cmds, g.gates, g.output = append(g.cmds, cmd), append(g.gates, gate), append(g.output, buffer)
	}
	return g, nil
}

// release lets all processes go.
func (g *group) release() {
	for _, gate := range g.gates {
		gate.Close()
	}
	g.gates = nil
}

// untilHandled waits until every process has a handler for a signal or has ended. A signal sent before would
// end the process, as a signal without a handler does.
func (g *group) untilHandled(ctx context.Context, s syscall.Signal) {
	for _, cmd := range g.cmds {
		for {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
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

func (g *group) signal(s syscall.Signal) {
	for _, cmd := range g.cmds {
		_ = cmd.Process.Signal(s) // it may have ended
	}
}

func (g *group) kill() {
	for _, cmd := range g.cmds {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}

// wait returns the output of each process when all have ended; when the context ends first they are killed.
func (g *group) wait(ctx context.Context) ([]string, error) {
	g.release()
	stop := context.AfterFunc(ctx, g.kill)
	defer stop()
	var outputs []string
	var errs []error
	for i, cmd := range g.cmds {
		err := cmd.Wait()
		text := g.output[i].String()
		outputs = append(outputs, text)
		if err != nil {
			errs = append(errs, fmt.Errorf("run %s: %w: %s", g.commands[i][0], err, lastLines(text)))
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("run %s: %w", g.commands[0][0], ctx.Err())
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
