// Package remote works on a live cluster from outside, for `beeline-lab bench --kubeconfig`: it creates objects in a
// namespace, runs commands in pods and deletes what it created. It is a thin layer over the API; the caller decides
// what to create and run. deploy/bench-rbac.yaml has the permissions.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client sends requests to one API server. Its methods are safe for concurrent use.
type Client struct {
	config *rest.Config
	core   *rest.RESTClient
	apps   *rest.RESTClient
	params runtime.ParameterCodec
}

// requestTimeout bounds each request but exec, so that a server that hangs is noticed.
const requestTimeout = 30 * time.Second

// Open reads a kubeconfig file. It sends no request. An empty context name means the file's current one.
func Open(kubeconfig, contextName, userAgent string) (*Client, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: contextName}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	config.UserAgent = userAgent
	return newClient(config)
}

// scheme has the two groups that this package uses. It is made on first use.
var scheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s, errors.Join(corev1.AddToScheme(s), appsv1.AddToScheme(s))
})

func newClient(config *rest.Config) (*Client, error) {
	registered, err := scheme()
	if err != nil {
		return nil, fmt.Errorf("register API types: %w", err)
	}
	config.QPS = -1 // there are few requests, each of which is waited for
	config.NegotiatedSerializer = serializer.NewCodecFactory(registered).WithoutConversion()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make HTTP client: %w", err)
	}
	c := &Client{config: config, params: runtime.NewParameterCodec(registered)}
	if c.core, err = clientFor(*config, corev1.SchemeGroupVersion, "/api", transport); err != nil {
		return nil, err
	}
	if c.apps, err = clientFor(*config, appsv1.SchemeGroupVersion, "/apis", transport); err != nil {
		return nil, err
	}
	return c, nil
}

func clientFor(config rest.Config, gv schema.GroupVersion, path string, transport *http.Client) (*rest.RESTClient, error) {
	config.GroupVersion, config.APIPath = &gv, path
	client, err := rest.RESTClientForConfigAndClient(&config, transport)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", gv, err)
	}
	return client, nil
}

// list lists objects by label; the empty namespace means all, or cluster-scoped objects.
func (c *Client) list(ctx context.Context, client *rest.RESTClient, resource, namespace, selector string, into runtime.Object) error {
	err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).
		VersionedParams(&metav1.ListOptions{LabelSelector: selector}, c.params).Timeout(requestTimeout).Do(ctx).Into(into)
	if err != nil {
		return fmt.Errorf("list %s: %w", resource, err)
	}
	return nil
}

// create creates an object and fills in the server's result.
func (c *Client) create(ctx context.Context, resource, namespace string, object runtime.Object) error {
	err := c.core.Post().NamespaceIfScoped(namespace, namespace != "").Resource(resource).
		VersionedParams(&metav1.CreateOptions{}, c.params).Body(object).Timeout(requestTimeout).Do(ctx).Into(object)
	if err != nil {
		return fmt.Errorf("create %s: %w", resource, err)
	}
	return nil
}

// delete starts the deletion of an object. A missing one is no error.
func (c *Client) delete(ctx context.Context, resource, namespace, name string) error {
	err := c.core.Delete().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).Timeout(requestTimeout).Do(ctx).Error()
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", resource, name, err)
	}
	return nil
}
