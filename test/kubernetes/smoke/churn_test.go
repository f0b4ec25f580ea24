//go:build kubernetes

package smoke

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// hundredPods: a hundred pods at once all get a network, each with an address of its own, all reachable; and when they
// are gone nothing of them is left.
func hundredPods(t *testing.T) {
	c := theCast(t)
	crowd := makeCrowd(t, 100)
	addresses := waitCrowd(t, crowd)
	wantDistinctAddresses(t)
	for _, client := range []actor{c.a, c.remote} {
		client.want(t, append([]string{"ask"}, addresses...)...)
	}
	removeCrowd(t)
	waitTraces(t)
}

// agentsDieWhilePodsStart: one agent's pod is deleted by force and the process of the other one is killed while pods
// are being created. All of them come up.
func agentsDieWhilePodsStart(t *testing.T) {
	needBeeline(t)
	c := theCast(t)
	victim := agentOn(t, c.near.name)
	process, err := agentProcess(c.far.name)
	if err != nil {
		t.Fatal(err)
	}
	crowd := makeCrowd(t, 40)
	waitSome(t, crowd) // so that the agents are at work
	if _, err := onNode(c.far.name).run("kill", "-KILL", process); err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, "-n", agentNamespace, "delete", "pod", victim, "--force", "--grace-period=0")
	addresses := waitCrowd(t, crowd)
	wantDistinctAddresses(t)
	c.a.want(t, append([]string{"ask"}, addresses...)...)
	for _, n := range []node{c.near, c.far} {
		waitAgentReady(t, n.name)
		waitAgentKnowsPods(t, n.name)
	}
	removeCrowd(t)
	waitTraces(t)
}

// crowdLabel marks pods that a test makes in number.
const crowdLabel = "crowd"

// makeCrowd creates so many pods, alternating between the nodes. They are removed at the end of the test at the latest.
func makeCrowd(t *testing.T, count int) (names []string) {
	t.Helper()
	t.Cleanup(func() { removeCrowd(t) })
	nodes := clusterNodes(t)
	var objects []any
	for i := range count {
		pod := podObject(fmt.Sprintf("crowd-%03d", i), nodes[i%len(nodes)].name)
		pod.Labels[crowdLabel] = "yes"
		// A hundred probes each second are not what is tested.
		pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 4
		names = append(names, pod.Name)
		objects = append(objects, pod)
	}
	apply(t, objects...)
	return names
}

// waitCrowd waits until all pods of the crowd are ready and gives the addresses at which they say who they are.
func waitCrowd(t *testing.T, names []string) (who []string) {
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
		if err := get(&list, "pods", "-l", crowdLabel); err != nil {
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

// removeCrowd deletes the crowd and waits until it is gone. kubectl would wait for each pod with requests of its own, five a second.
func removeCrowd(t *testing.T) {
	t.Helper()
	if _, err := kubectl("-n", namespace, "delete", "pods", "-l", crowdLabel, "--wait=false"); err != nil {
		t.Error(err)
	}
	whileFewer(t, func() (left []string, err error) {
		said, err := kubectl("-n", namespace, "get", "pods", "-l", crowdLabel, "-o", "name")
		return strings.Fields(said), err
	})
}
