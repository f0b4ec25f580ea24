//go:build kubernetes

package smoke

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// runner is where a program runs: a pod, a node, or an external host.
type runner struct {
	name string
	// command returns a command that runs there.
	command func(args ...string) (*exec.Cmd, error)
	// probe is the path of the probe there.
	probe string
}

// inPod is the first container of a pod of the tests.
func inPod(name string) runner {
	return runner{"pod " + name, func(args ...string) (*exec.Cmd, error) {
		return outside().command(append([]string{"kubectl", "-n", namespace, "exec", name, "--"}, args...)...)
	}, "/probe"}
}

// onNode is the node itself: its network, its files.
func onNode(name string) runner {
	return runner{"node " + name, func(args ...string) (*exec.Cmd, error) {
		return cluster.NodeCommand(context.Background(), name, args...)
	}, nodeProbe}
}

// outside is an external host, on the nodes' network.
func outside() runner {
	return runner{"the outside", func(args ...string) (*exec.Cmd, error) {
		return cluster.Command(context.Background(), args[0], args[1:]...), nil
	}, externalProbe}
}

// run runs a command there and returns its output; the error includes stderr.
func (p runner) run(args ...string) (string, error) { return p.feed("", args...) }

// feed runs a command there with this input.
func (p runner) feed(input string, args ...string) (string, error) {
	cmd, err := p.command(args...)
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s in %s: %w: %s", strings.Join(args, " "), p.name, err,
			strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}

// try runs a probe there.
func (p runner) try(args ...string) (string, error) {
	return p.run(append([]string{p.probe}, args...)...)
}

// want runs a probe there; if it fails, the test fails and continues.
func (p runner) want(t *testing.T, args ...string) string {
	t.Helper()
	output, err := p.try(args...)
	if err != nil {
		t.Error(err)
	}
	return output
}

// kubectl runs kubectl as the cluster's administrator.
func kubectl(args ...string) (string, error) {
	return outside().run(append([]string{"kubectl"}, args...)...)
}

// mustKubectl ends the test if kubectl fails.
func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	output, err := kubectl(args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}
