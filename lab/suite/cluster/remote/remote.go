// Package remote works on a live cluster from outside, for `beeline-lab bench --kubeconfig`: it creates objects in a
// namespace, runs commands in pods and deletes what it created. It is a thin layer over the API; the caller decides
// what to create and run. deploy/bench-rbac.yaml has the permissions.
package remote

import (
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
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

func newClient(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)))
	config.QPS = -1 // there are few requests, each of which is waited for
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	core, err := clientFor(*config, corev1.SchemeGroupVersion, "/api")
	if err != nil {
		return nil, err
	}
	apps, err := clientFor(*config, appsv1.SchemeGroupVersion, "/apis")
	return &Client{config: config, core: core, apps: apps, params: runtime.NewParameterCodec(scheme)}, err
}

func clientFor(config rest.Config, gv schema.GroupVersion, path string) (*rest.RESTClient, error) {
	config.GroupVersion, config.APIPath = &gv, path
	client, err := rest.RESTClientFor(&config)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", gv, err)
	}
	return client, nil
}
