package apiserver

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Pod asks the server for a pod; nil if there is none. What watches have delivered may be older.
func (c *Claims) Pod(ctx context.Context, key cluster.Key) (*cluster.Pod, error) {
	var full corev1.Pod
	err := c.core().Get().MaxRetries(0).Namespace(key.Namespace).Resource("pods").Name(key.Name).Do(ctx).Into(&full)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get pod %s: %w", key, err)
	}
	reduced, err := cluster.Reduce(&full)
	if err != nil {
		return nil, err
	}
	return reduced.(*cluster.Pod), nil
}

// NodeGone asks the server whether a machine runs no pods any more: its Node does not exist, or has the taint by which
// an administrator, or the cloud's controller, says that it is out of service. A node that is only unreachable may run.
func (c *Claims) NodeGone(ctx context.Context, name string) (bool, error) {
	var node corev1.Node
	err := c.core().Get().MaxRetries(0).Resource("nodes").Name(name).Do(ctx).Into(&node)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("get Node %s: %w", name, err)
	}
	return cluster.IsOutOfService(&node), nil
}

// Ordinals asks the server for the ordinals of a StatefulSet's pods: count of them from first; none if it does not exist.
func (c *Claims) Ordinals(ctx context.Context, key cluster.Key) (first, count int, err error) {
	// Read by hand: the types of the group apps would take memory on every node.
	answer, err := c.core().Get().MaxRetries(0).AbsPath("/apis/apps/v1/namespaces", key.Namespace, "statefulsets", key.Name).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return 0, 0, nil
	}
	var set struct {
		Spec struct {
			Replicas *int
			Ordinals struct{ Start int }
		}
	}
	if err == nil {
		err = json.Unmarshal(answer, &set)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("get StatefulSet %s: %w", key, err)
	}
	if set.Spec.Replicas == nil {
		return set.Spec.Ordinals.Start, 1, nil // the default of spec.replicas
	}
	return set.Spec.Ordinals.Start, *set.Spec.Replicas, nil
}
