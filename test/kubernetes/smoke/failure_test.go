//go:build kubernetes

package smoke

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// explainFailure logs diagnostics if the test fails: pods, events of unready ones, and the agents' logs and drops.
func explainFailure(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		show := func(title, output string, err error) {
			if err != nil {
				output += err.Error()
			}
			t.Logf("== %s\n%s", title, strings.TrimSpace(output))
		}
		output, err := kubectl("get", "nodes,pods,endpointslices", "-A", "-o", "wide")
		show("objects", output, err)
		output, err = kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")
		show("events", lastLines(output, 40), err)
		var list corev1.PodList
		if err := get(&list, "pods"); err == nil {
			describeUnready(t, list.Items)
		}
		if isBeeline() {
			explainAgents(show)
		}
	})
}

// describeUnready describes the first few pods that are not ready.
func describeUnready(t *testing.T, all []corev1.Pod) {
	const enough = 3
	described := 0
	for _, p := range all {
		if isReady(p) || described == enough {
			continue
		}
		described++
		output, err := kubectl("-n", p.Namespace, "describe", "pod", p.Name)
		t.Logf("== pod %s %v\n%s", p.Name, err, output)
	}
}

func explainAgents(show func(title, output string, err error)) {
	nodes, err := kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return // shown already: no objects either
	}
	for _, node := range strings.Fields(nodes) {
		for _, command := range []string{"status", "endpoints", "drops"} {
			output, err := onNode(node).run(nodeBeeline, command)
			show(fmt.Sprintf("beeline %s on %s", command, node), output, err)
		}
		all, err := agentPods(node)
		if err != nil {
			continue
		}
		for _, p := range all {
			output, err := kubectl("-n", agentNamespace, "logs", p.Name, "--tail=40")
			show("log of "+p.Name+" on "+node, output, err)
			if output, err = kubectl("-n", agentNamespace, "logs", p.Name, "--previous", "--tail=40"); err == nil {
				show("log of the agent before "+p.Name, output, nil)
			}
		}
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
