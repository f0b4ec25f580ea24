package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/test/netlab"
)

func (n *node) socket() string        { return netlab.Socket(n.Node) }
func (n *node) stateDir() string      { return netlab.StateDir(n.Node) }
func (n *node) logFile() string       { return netlab.LogFile(n.Node) }
func (n *node) api() *agentapi.Client { return netlab.API(n.Node) }

// agentCommand is the agent's command line on the node. flags override the defaults.
func (c *cluster) agentCommand(n *node, p programs, flags ...string) *exec.Cmd {
	return netlab.AgentCommand(p, n.Node, c.manifests, flags...)
}

// start starts an agent on the node and does not wait for it.
func (c *cluster) start(n *node, p programs, flags ...string) {
	c.t.Helper()
	c.startAs(n, c.agentCommand(n, p, flags...))
}

// startAs starts an agent with this command.
func (c *cluster) startAs(n *node, cmd *exec.Cmd) {
	c.t.Helper()
	a, err := netlab.StartAgent(n.Node, cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	n.agent = a
}

// waitReady waits until the node's agent reports that it is ready.
func (c *cluster) waitReady(n *node) {
	c.t.Helper()
	eventually(c.t, func() error {
		select {
		case <-n.agent.Ended:
			c.t.Fatalf("agent of %s ended: %v", n.Name, n.agent.Err)
		default:
		}
		return n.api().Ready(c.t.Context())
	})
}

// kill stops the node's agent with SIGKILL.
func (c *cluster) kill(n *node) {
	c.t.Helper()
	n.agent.Kill()
}

// terminate stops the node's agent with SIGTERM and returns the result of Wait.
func (c *cluster) terminate(n *node) error {
	c.t.Helper()
	return n.agent.Terminate()
}

// restart kills the node's agent, starts another one and waits until it is ready.
func (c *cluster) restart(n *node, p programs, flags ...string) {
	c.t.Helper()
	c.kill(n)
	c.start(n, p, flags...)
	c.waitReady(n)
}

// status reads the status of the node's agent.
func (c *cluster) status(n *node) *agentapi.Status {
	c.t.Helper()
	s, err := n.api().Status(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// waitStatus waits until the status of the node's agent satisfies the condition.
func (c *cluster) waitStatus(n *node, condition func(*agentapi.Status) error) {
	c.t.Helper()
	eventually(c.t, func() error {
		s, err := n.api().Status(c.t.Context())
		if err != nil {
			return err // the agent may be starting
		}
		return condition(s)
	})
}

// waitProblem waits until the agent reports a problem with all of the words.
func (c *cluster) waitProblem(n *node, words ...string) {
	c.t.Helper()
	c.waitStatus(n, func(s *agentapi.Status) error {
		for _, p := range s.Problems {
			if containsAll(p, words) {
				return nil
			}
		}
		return fmt.Errorf("%s reports problems %q, want one with %q", n.Name, s.Problems, words)
	})
}

// waitNoProblem waits until the agent reports no problem.
func (c *cluster) waitNoProblem(n *node) {
	c.t.Helper()
	c.waitStatus(n, func(s *agentapi.Status) error {
		if len(s.Problems) > 0 {
			return errors.New(strings.Join(s.Problems, "; "))
		}
		return nil
	})
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
