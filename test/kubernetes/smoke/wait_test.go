//go:build kubernetes

package smoke

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// patience bounds every wait. Nothing takes nearly as long unless it never happens.
const patience = 5 * time.Minute

// eventually waits until the condition holds. The condition returns why it does not hold yet.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	begin := time.Now()
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Since(begin) > patience {
			t.Fatalf("timed out after %s: %v", patience, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// whileFewer waits until the condition reports nothing left. Patience bounds the time without progress, not the
// total.
func whileFewer(t *testing.T, condition func() (left []string, err error)) {
	t.Helper()
	fewest, since := -1, time.Now()
	for {
		left, err := condition()
		if err == nil && len(left) == 0 {
			return
		}
		if err == nil && (fewest < 0 || len(left) < fewest) {
			fewest, since = len(left), time.Now()
		}
		if time.Since(since) > patience {
			t.Fatalf("%d are left, and not fewer since %s: %s %v", len(left), patience, strings.Join(left, ", "), err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// waitReady waits until these pods are ready and returns them.
func waitReady(t *testing.T, names ...string) map[string]corev1.Pod {
	t.Helper()
	ready := map[string]corev1.Pod{}
	whileFewer(t, func() (waiting []string, err error) {
		var pods corev1.PodList
		if err := get(&pods, "pods"); err != nil {
			return nil, err
		}
		found := map[string]corev1.Pod{}
		for _, p := range pods.Items {
			found[p.Name] = p
		}
		for _, name := range names {
			if p, there := found[name]; !there || !isReady(p) {
				waiting = append(waiting, fmt.Sprintf("%s is not ready (%s)", name, podState(p)))
			}
			ready[name] = found[name]
		}
		return waiting, nil
	})
	return ready
}

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// podState summarizes what a pod waits for.
func podState(p corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			return c.State.Waiting.Reason
		}
		if c.State.Terminated != nil {
			return c.State.Terminated.Reason
		}
	}
	if p.Status.Phase == "" {
		return "not there"
	}
	return string(p.Status.Phase)
}

// nodeCondition returns the status and reason of a node's condition.
func nodeCondition(node string, kind corev1.NodeConditionType) (corev1.ConditionStatus, string, error) {
	var n corev1.Node
	if err := get(&n, "node", node); err != nil {
		return "", "", err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status, c.Reason + ": " + c.Message, nil
		}
	}
	return corev1.ConditionUnknown, "no such condition", nil
}

// waitNodeReady waits until the node is ready.
func waitNodeReady(t *testing.T, node string) {
	t.Helper()
	eventually(t, func() error {
		status, why, err := nodeCondition(node, corev1.NodeReady)
		if err == nil && status != corev1.ConditionTrue {
			err = fmt.Errorf("node %s is not ready: %s", node, why)
		}
		return err
	})
}

// waitPod waits until the condition holds for a pod.
func waitPod(t *testing.T, name string, holds func(corev1.Pod) bool) {
	t.Helper()
	eventually(t, func() error {
		var p corev1.Pod
		err := get(&p, "pod", name)
		if err == nil && !holds(p) {
			err = fmt.Errorf("pod %s: %s, ready: %t", name, podState(p), isReady(p))
		}
		return err
	})
}

// wantSame returns an error unless both are the same, or err.
func wantSame(what, got, want string, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("%s: %s, want %s", what, got, want)
	}
	return err
}
