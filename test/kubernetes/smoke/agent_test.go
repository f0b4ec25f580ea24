//go:build kubernetes

package smoke

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Locations in deploy/beeline.yaml.
const (
	agentNamespace = "kube-system"
	agentDaemonSet = "daemonset/beeline"
	agentLabel     = "app.kubernetes.io/name=beeline"
	agentAccount   = "system:serviceaccount:kube-system:beeline"
)

// needBeeline skips a test that needs an agent if the cluster has another network.
func needBeeline(t *testing.T) {
	t.Helper()
	if !isBeeline() {
		testenv.Missing(t, "this cluster's network has no agent")
	}
}

// agentOn returns the ready agent pod of a node.
func agentOn(t *testing.T, node string) (pod string) {
	t.Helper()
	eventually(t, func() error {
		all, err := agentPods(node)
		if err != nil {
			return err
		}
		for _, p := range all {
			if isReady(p) {
				pod = p.Name
				return nil
			}
		}
		return fmt.Errorf("no agent is ready on %s", node)
	})
	return pod
}

// agentPods are the agent's pods on a node, or on all nodes if it is empty.
func agentPods(node string) ([]corev1.Pod, error) {
	args := []string{"pods", "-n", agentNamespace, "-l", agentLabel}
	if node != "" {
		args = append(args, "--field-selector", "spec.nodeName="+node)
	}
	var all corev1.PodList
	err := get(&all, args...)
	return all.Items, err
}

// askAgent runs a beeline command on the node and reads its JSON. It needs no API server.
func askAgent(node string, into any, command string) error {
	output, err := onNode(node).run(nodeBeeline, command, "--output=json")
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(output), into)
}

func agentStatus(node string) (s agentapi.Status, err error) {
	err = askAgent(node, &s, "status")
	return s, err
}

func agentEndpoints(node string) (all []agentapi.Endpoint, err error) {
	err = askAgent(node, &all, "endpoints")
	return all, err
}

// waitAgentReady waits until the agent of a node is ready.
func waitAgentReady(t *testing.T, node string) {
	t.Helper()
	eventually(t, func() error {
		s, err := agentStatus(node)
		if err == nil && !s.Ready {
			err = fmt.Errorf("the agent of %s is not ready: %s", node, strings.Join(s.Problems, "; "))
		}
		return err
	})
}

// agentProcess is the process id of the agent in the node's PID namespace.
func agentProcess(node string) (string, error) {
	output, err := onNode(node).run("pgrep", "-o", "-f", "beeline-agent run")
	return strings.TrimSpace(output), err
}
