package remote

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
)

// isNotFound reports whether the object does not exist.
func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// IsForbidden reports whether the server denied the authenticated user.
func IsForbidden(err error) bool { return apierrors.IsForbidden(err) }

// Version is the API server's version, such as v1.36.3. Every authenticated user may read it.
func (c *Client) Version(ctx context.Context) (string, error) {
	raw, err := c.core.Get().AbsPath("/version").Timeout(requestTimeout).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("ask API server for its version: %w", err)
	}
	var info version.Info
	if err := json.Unmarshal(raw, &info); err != nil {
		return "", fmt.Errorf("read API server's version: %w", err)
	}
	return info.GitVersion, nil
}

// Nodes lists all nodes.
func (c *Client) Nodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	err := c.list(ctx, c.core, "nodes", "", "", &list)
	return list.Items, err
}

// DaemonSets lists those of a namespace; the empty name means all.
func (c *Client) DaemonSets(ctx context.Context, namespace string) ([]appsv1.DaemonSet, error) {
	var list appsv1.DaemonSetList
	err := c.list(ctx, c.apps, "daemonsets", namespace, "", &list)
	return list.Items, err
}

// ConfigMap gives its data.
func (c *Client) ConfigMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	var object corev1.ConfigMap
	err := c.core.Get().Namespace(namespace).Resource("configmaps").Name(name).Timeout(requestTimeout).Do(ctx).Into(&object)
	if err != nil {
		return nil, fmt.Errorf("get config map %s/%s: %w", namespace, name, err)
	}
	return object.Data, nil
}

// Namespaces lists those with a label.
func (c *Client) Namespaces(ctx context.Context, selector string) ([]corev1.Namespace, error) {
	var list corev1.NamespaceList
	err := c.list(ctx, c.core, "namespaces", "", selector, &list)
	return list.Items, err
}

// HasNamespace reports whether a namespace exists; it may be terminating.
func (c *Client) HasNamespace(ctx context.Context, name string) (bool, error) {
	err := c.core.Get().Resource("namespaces").Name(name).Timeout(requestTimeout).Do(ctx).Error()
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get namespace %s: %w", name, err)
	}
	return true, nil
}

// CreateNamespace creates one.
func (c *Client) CreateNamespace(ctx context.Context, object *corev1.Namespace) error {
	return c.create(ctx, "namespaces", "", object)
}

// DeleteNamespace starts the deletion of a namespace and its content; HasNamespace reports when it is complete.
func (c *Client) DeleteNamespace(ctx context.Context, name string) error {
	return c.delete(ctx, "namespaces", "", name)
}

// Pods lists the pods with a label in a namespace.
func (c *Client) Pods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.list(ctx, c.core, "pods", namespace, selector, &list)
	return list.Items, err
}

// CreatePod creates a pod in the namespace it names.
func (c *Client) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	return c.create(ctx, "pods", pod.Namespace, pod)
}

// DeletePod starts the deletion of a pod.
func (c *Client) DeletePod(ctx context.Context, namespace, name string) error {
	return c.delete(ctx, "pods", namespace, name)
}

// Services lists the Services with a label in a namespace.
func (c *Client) Services(ctx context.Context, namespace, selector string) ([]corev1.Service, error) {
	var list corev1.ServiceList
	err := c.list(ctx, c.core, "services", namespace, selector, &list)
	return list.Items, err
}

// CreateService creates a Service in its namespace, and fills in the fields that the server allocates.
func (c *Client) CreateService(ctx context.Context, service *corev1.Service) error {
	return c.create(ctx, "services", service.Namespace, service)
}

// SetServicePorts replaces the ports of a Service.
func (c *Client) SetServicePorts(ctx context.Context, namespace, name string, ports []corev1.ServicePort) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ports": ports}})
	if err != nil {
		return fmt.Errorf("encode ports of service %s: %w", name, err)
	}
	err = c.core.Patch(types.MergePatchType).Namespace(namespace).Resource("services").Name(name).
		VersionedParams(&metav1.PatchOptions{}, c.params).Body(patch).Timeout(requestTimeout).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("set ports of service %s: %w", name, err)
	}
	return nil
}

// DeleteService starts the deletion of a Service.
func (c *Client) DeleteService(ctx context.Context, namespace, name string) error {
	return c.delete(ctx, "services", namespace, name)
}
