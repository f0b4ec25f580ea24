//go:build kubernetes

package smoke

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// hundredPods: a hundred pods created at once get distinct addresses and are reachable; their deletion leaves no
// state.
func hundredPods(t *testing.T) {
	c := useFixtures(t)
	batch := makeBatch(t, 100)
	addresses := waitBatch(t, batch)
	wantDistinctAddresses(t)
	for _, client := range []testPod{c.a, c.remote} {
		client.want(t, append([]string{"ask"}, addresses...)...)
	}
	removeBatch(t)
	waitTraces(t)
}

// agentsDieWhilePodsStart: one agent pod is deleted by force and the other agent is killed while pods are created.
// All pods start.
func agentsDieWhilePodsStart(t *testing.T) {
	needBeeline(t)
	c := useFixtures(t)
	victim := agentOn(t, c.near.name)
	process, err := agentProcess(c.far.name)
	if err != nil {
		t.Fatal(err)
	}
	batch := makeBatch(t, 40)
	waitSome(t, batch) // so that the agents are at work
	if _, err := onNode(c.far.name).run("kill", "-KILL", process); err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, "-n", agentNamespace, "delete", "pod", victim, "--force", "--grace-period=0")
	addresses := waitBatch(t, batch)
	wantDistinctAddresses(t)
	c.a.want(t, append([]string{"ask"}, addresses...)...)
	for _, n := range []node{c.near, c.far} {
		waitAgentReady(t, n.name)
		waitAgentHasPods(t, n.name)
	}
	removeBatch(t)
	waitTraces(t)
}

// batchLabel marks pods of a batch.
const batchLabel = "batch"

// makeBatch creates pods on alternating nodes. The test's cleanup removes them.
func makeBatch(t *testing.T, count int) (names []string) {
	t.Helper()
	t.Cleanup(func() { removeBatch(t) })
	nodes := clusterNodes(t)
	var objects []any
	for i := range count {
		pod := podObject(fmt.Sprintf("batch-%03d", i), nodes[i%len(nodes)].name)
		pod.Labels[batchLabel] = "yes"
		// Avoid a hundred probes each second.
		pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 4
		names = append(names, pod.Name)
		objects = append(objects, pod)
	}
	apply(t, objects...)
	return names
}

// waitBatch waits until all pods of the batch are ready and returns the addresses of their HTTP servers.
func waitBatch(t *testing.T, names []string) (who []string) {
	t.Helper()
	for _, p := range waitReady(t, names...) {
		who = append(who, hostPort(p.Status.PodIP, httpPort))
	}
	return who
}

// waitSome waits until one of the pods runs.
func waitSome(t *testing.T, names []string) {
	t.Helper()
	eventually(t, func() error {
		var list corev1.PodList
		if err := get(&list, "pods", "-l", batchLabel); err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return fmt.Errorf("none of %d pods runs", len(names))
	})
}

// removeBatch deletes the batch and waits until it is gone. kubectl would wait for each pod with requests of its own,
// five a second.
func removeBatch(t *testing.T) {
	t.Helper()
	if _, err := kubectl("-n", namespace, "delete", "pods", "-l", batchLabel, "--wait=false"); err != nil {
		t.Error(err)
	}
	whileFewer(t, func() (left []string, err error) {
		output, err := kubectl("-n", namespace, "get", "pods", "-l", batchLabel, "-o", "name")
		return strings.Fields(output), err
	})
}
