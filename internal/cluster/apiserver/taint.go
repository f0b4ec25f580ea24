package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

// patchTaint adds the taint to the object or removes it. A patch replaces all taints; the resource version keeps it
// from overwriting those of another client.
func (r *Reporter) patchTaint(ctx context.Context, before *ownNode, tainted bool) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": before.version},
		"spec":     map[string]any{"taints": withTaint(before.taints, tainted)},
	})
	if err != nil {
		return fmt.Errorf("encode node taints: %w", err)
	}
	var node corev1.Node
	if err := r.client.Patch(types.MergePatchType).Resource("nodes").Name(r.nodeName).Body(body).Do(ctx).Into(&node); err != nil {
		return fmt.Errorf("patch taints of node %s: %w", r.nodeName, err)
	}
	r.source.answered(requestPatch, nil)
	r.source.setOwn(before, readOwn(&node))
	r.log.Info("node taint written", "key", NotReadyTaint, "present", tainted)
	return nil
}
