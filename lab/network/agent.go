package network

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
	"sigs.k8s.io/yaml"
)

// AgentPatience is how long an agent may take to be ready. Tests on slow machines give it more.
var AgentPatience = 30 * time.Second

func agentSocket(n *testbed.Node) string  { return filepath.Join(n.StateDir, "agent.sock") }
func agentPIDFile(n *testbed.Node) string { return filepath.Join(n.StateDir, "agent.pid") }

// start starts a command in the node's namespace and cgroup, away from this process's terminal: it ends with the lab. Its
// output and its process id go to files.
func start(node *testbed.Node, cmd *exec.Cmd, logFile, pidFile string) (*testbed.Process, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p, err := node.Background(cmd)
	if err != nil {
		return nil, err
	}
	return p, os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// waitReady waits until the agent of a node says that it is ready. The error ends with the end of its log.
func waitReady(ctx context.Context, node *testbed.Node, agent *testbed.Process) error {
	ctx, cancel := context.WithTimeout(ctx, AgentPatience)
	defer cancel()
	client := agentapi.NewClient(agentSocket(node))
	for {
		err := client.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-agent.Ended:
			err = fmt.Errorf("it ended: %w", cmp.Or(agent.Err, errors.New("exit status 0")))
		case <-ctx.Done():
			err = fmt.Errorf("not ready in time: %w", err)
		case <-time.After(10 * time.Millisecond):
			continue
		}
		return fmt.Errorf("agent of %s: %w\nthe end of %s:\n%s", node.Name, err, AgentLog(node), logTail(AgentLog(node), 20))
	}
}

// logTail returns the last lines of a file, or why there are none.
func logTail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// runningAgent reads the recorded process id and believes it only for a process of the node.
func runningAgent(node *testbed.Node) int { return runningIn(node, agentPIDFile(node)) }

// runningIn returns the process id in a file, 0 if no such process of the node runs.
func runningIn(node *testbed.Node, file string) int {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(data)))
	if err != nil {
		return 0
	}
	running, err := node.Processes()
	if err != nil || !slices.Contains(running, pid) {
		return 0
	}
	return pid
}

// stopAgent asks the agent of a node to end and waits until it has.
func stopAgent(ctx context.Context, node *testbed.Node) error {
	pid := runningAgent(node)
	if pid == 0 {
		return errors.New("none runs")
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, AgentPatience)
	defer cancel()
	for runningAgent(node) != 0 {
		if err := wait.For(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("process %d goes on: %w", pid, err)
		}
	}
	return nil
}

// writeNodeManifests writes the nodes of the lab, with annotations by their names, as the Node objects that an API server
// would have.
func writeNodeManifests(dir string, lab *testbed.Lab, annotations map[string]map[string]string) error {
	var all bytes.Buffer
	for _, node := range lab.Nodes() {
		object := services.Node(node)
		object.Annotations = annotations[node.Name]
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("encode node %s: %w", node.Name, err)
		}
		fmt.Fprintf(&all, "---\n%s", text)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "nodes.yaml"), all.Bytes(), 0o644)
}
