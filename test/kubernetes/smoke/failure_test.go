//go:build kubernetes

package smoke

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// explainFailure shows, when the test fails, what a person would look at next: the pods, what happened to those that
// are not ready, and what the agents say and have dropped.
func explainFailure(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		show := func(title, said string, err error) {
			if err != nil {
				said += err.Error()
			}
			t.Logf("== %s\n%s", title, strings.TrimSpace(said))
		}
		said, err := kubectl("get", "nodes,pods,endpointslices", "-A", "-o", "wide")
		show("objects", said, err)
		said, err = kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")
		show("events", lastLines(said, 40), err)
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
		said, err := kubectl("-n", p.Namespace, "describe", "pod", p.Name)
		t.Logf("== pod %s %v\n%s", p.Name, err, said)
	}
}

func explainAgents(show func(title, said string, err error)) {
	nodes, err := kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return // shown already: no objects either
	}
	for _, node := range strings.Fields(nodes) {
		for _, command := range []string{"status", "endpoints", "drops"} {
			said, err := onNode(node).run(nodeBeeline, command)
			show(fmt.Sprintf("beeline %s on %s", command, node), said, err)
		}
		all, err := agentPods(node)
		if err != nil {
			continue
		}
		for _, p := range all {
			said, err := kubectl("-n", agentNamespace, "logs", p.Name, "--tail=40")
			show("log of "+p.Name+" on "+node, said, err)
			if said, err = kubectl("-n", agentNamespace, "logs", p.Name, "--previous", "--tail=40"); err == nil {
				show("log of the agent before "+p.Name, said, nil)
			}
		}
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
