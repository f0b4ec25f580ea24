package netlab

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Agent is a running agent.
type Agent struct {
	Cmd *exec.Cmd
	// Ended is closed when the process has ended.
	Ended chan struct{}
	// Err is the result of Wait; read it after Ended is closed.
	Err error
}

// AgentCommand is the command line of an agent that reads manifests. flags override the defaults.
func AgentCommand(p Programs, n *testbed.Node, manifests string, flags ...string) *exec.Cmd {
	return exec.Command(p.Agent(), append([]string{"run",
		"--node-name", n.Name,
		"--manifests", manifests,
		"--socket", Socket(n),
		"--state-dir", StateDir(n),
		"--bpffs", n.BPFFS,
		"--cgroup", n.Cgroup,
	}, flags...)...)
}

// StartAgent starts cmd on the node and does not wait until the agent is ready. The output is appended to LogFile.
func StartAgent(n *testbed.Node, cmd *exec.Cmd) (*Agent, error) {
	log, err := os.OpenFile(LogFile(n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := n.Start(cmd); err != nil {
		return nil, err
	}
	a := &Agent{Cmd: cmd, Ended: make(chan struct{})}
	go func() {
		a.Err = cmd.Wait()
		close(a.Ended)
	}()
	return a, nil
}

// Kill stops the agent with SIGKILL.
func (a *Agent) Kill() {
	_ = a.Cmd.Process.Kill()
	<-a.Ended
}

// Terminate stops the agent with SIGTERM and returns the result of Wait.
func (a *Agent) Terminate() error {
	if err := a.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-a.Ended
	return a.Err
}
