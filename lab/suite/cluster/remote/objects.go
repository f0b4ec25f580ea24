package remote

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// Object is an API object.
type Object interface {
	runtime.Object
	metav1.Object
}

// IsForbidden reports whether the server denied the authenticated user.
func IsForbidden(err error) bool { return apierrors.IsForbidden(err) }

// endpoint returns the client and the resource of an object or a list, of those that this package knows.
func (c *Client) endpoint(o runtime.Object) (*rest.RESTClient, string) {
	switch o.(type) {
	case *corev1.Node, *corev1.NodeList:
		return c.core, "nodes"
	case *corev1.Namespace, *corev1.NamespaceList:
		return c.core, "namespaces"
	case *corev1.Pod, *corev1.PodList:
		return c.core, "pods"
	case *corev1.Service, *corev1.ServiceList:
		return c.core, "services"
	case *corev1.ConfigMap:
		return c.core, "configmaps"
	case *appsv1.DaemonSetList:
		return c.apps, "daemonsets"
	}
	panic(fmt.Sprintf("%T is no object of this client", o))
}

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

// Get reads the object of a namespace and a name.
func (c *Client) Get(ctx context.Context, into runtime.Object, namespace, name string) error {
	client, resource := c.endpoint(into)
	if err := client.Get().Namespace(namespace).Resource(resource).Name(name).Timeout(requestTimeout).Do(ctx).Into(into); err != nil {
		return fmt.Errorf("get %s %s/%s: %w", resource, namespace, name, err)
	}
	return nil
}

// List lists objects by label; the empty namespace means all, or cluster-scoped objects.
func (c *Client) List(ctx context.Context, into runtime.Object, namespace, selector string) error {
	client, resource := c.endpoint(into)
	err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).
		VersionedParams(&metav1.ListOptions{LabelSelector: selector}, c.params).Timeout(requestTimeout).Do(ctx).Into(into)
	if err != nil {
		return fmt.Errorf("list %s: %w", resource, err)
	}
	return nil
}

// Create creates an object in the namespace it names, and fills in the fields that the server allocates.
func (c *Client) Create(ctx context.Context, o Object) error {
	client, resource := c.endpoint(o)
	err := client.Post().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").Resource(resource).
		VersionedParams(&metav1.CreateOptions{}, c.params).Body(o).Timeout(requestTimeout).Do(ctx).Into(o)
	if err != nil {
		return fmt.Errorf("create %s: %w", resource, err)
	}
	return nil
}

// Delete starts the deletion of an object, and of what a namespace holds. A missing one is no error.
func (c *Client) Delete(ctx context.Context, o Object) error {
	client, resource := c.endpoint(o)
	err := client.Delete().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").Resource(resource).Name(o.GetName()).Timeout(requestTimeout).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", resource, o.GetName(), err)
	}
	return nil
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
