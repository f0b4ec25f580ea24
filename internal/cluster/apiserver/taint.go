package apiserver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// NotReadyTaint keeps pods that do not tolerate it from a node whose agent is not ready. The kubelet may register its
// node with it (--register-with-taints), with any effect. The agent removes it when it is ready, and adds it with
// NoSchedule when it has not been ready for a while.
const NotReadyTaint = "node.beeline-cni.github.io/agent-not-ready"

func isNotReadyTaint(t corev1.Taint) bool { return t.Key == NotReadyTaint }

func isTainted(taints []corev1.Taint) bool { return slices.ContainsFunc(taints, isNotReadyTaint) }

func isUnavailable(c Condition) bool { return c.Status == string(corev1.ConditionTrue) }

// withTaint gives taints with or without NotReadyTaint.
func withTaint(taints []corev1.Taint, tainted bool) []corev1.Taint {
	others := slices.DeleteFunc(slices.Clone(taints), isNotReadyTaint)
	if tainted {
		others = append(others, corev1.Taint{Key: NotReadyTaint, Effect: corev1.TaintEffectNoSchedule})
	}
	return others
}
