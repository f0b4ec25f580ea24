// Package apiserver reads the cluster from a Kubernetes API server and reports this node's state to it.
package apiserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// Config says where the API server is and how to authenticate.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file; empty means the service account of the pod this runs in.
	Kubeconfig string
	// Server is the URL of the API server for that service account, or a comma-separated list (see Servers); empty
	// means the pod's environment.
	Server string
	// NodeName is the metadata.name of this node's Node object.
	NodeName string
	// UserAgent is how the API server's audit log names this program.
	UserAgent string
}

// connection holds the clients for all requests. All API groups share one HTTP/2 connection.
type connection struct {
	host    string
	dialled *dialled
	clients map[schema.GroupVersion]*rest.RESTClient
}

// scheme has the six groups that this package uses. A clientset registers all groups, which costs memory on every
// node.
var scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	utilruntime.Must(networkingv1.AddToScheme(s))
	utilruntime.Must(authenticationv1.AddToScheme(s))
	utilruntime.Must(authorizationv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}

var (
	codecs         = serializer.NewCodecFactory(scheme)
	parameterCodec = runtime.NewParameterCodec(scheme)
)

// New makes the Source of an API server and the Reporter to it. It sends no request.
func New(config Config, log *slog.Logger) (*Source, *Reporter, error) {
	restConfig, err := restConfig(config.Kubeconfig, config.Server)
	if err != nil {
		return nil, nil, err
	}
	restConfig.UserAgent = config.UserAgent
	c, err := connect(restConfig)
	if err != nil {
		return nil, nil, err
	}
	if config.Server != "" {
		c.host = config.Server // may be a list
		servers, err := Servers(config.Server)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range servers {
			c.dialled.expect(s.String())
		}
		if len(servers) > 1 {
			c.dialled.timeout = dialTime
		}
	}
	source := newSource(c, config.NodeName, log)
	return source, newReporter(c, config.NodeName, source, log), nil
}

// serviceAccount is where a pod finds its service account.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

func restConfig(kubeconfig, server string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
		if err := checkKubeconfig(config.Host); err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	if server != "" {
		return accountConfig(serviceAccount, server)
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("no API server is known: this is not a pod of a cluster, and neither --kubeconfig nor --manifests is given")
	}
	if err != nil {
		return nil, fmt.Errorf("read the pod's service account: %w", err)
	}
	return config, nil
}

// accountConfig makes a configuration from a pod's service account and an explicit API server URL. The URL in the
// pod's environment may be a Service address that no proxy translates yet. The token is re-read when it changes.
func accountConfig(account, server string) (*rest.Config, error) {
	token, authority := filepath.Join(account, "token"), filepath.Join(account, "ca.crt")
	for _, file := range []string{token, authority} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("read the pod's service account: %w", err)
		}
	}
	servers, err := Servers(server)
	if err != nil {
		return nil, fmt.Errorf("URL of the API server: %w", err)
	}
	config := &rest.Config{Host: servers[0].String(), BearerTokenFile: token, TLSClientConfig: rest.TLSClientConfig{CAFile: authority}}
	if len(servers) > 1 {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &failover{next: next, servers: servers} })
	}
	return config, nil
}

func connect(config *rest.Config) (*connection, error) {
	config.QPS = -1 // the few requests are watches; retries have their own backoff
	config.NegotiatedSerializer = lean{codecs.WithoutConversion()}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	dialled := newDialled(config.Host)
	config.Dial = dialled.dial
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make HTTP client: %w", err)
	}
	c := &connection{host: config.Host, dialled: dialled, clients: map[schema.GroupVersion]*rest.RESTClient{}}
	for _, gv := range []schema.GroupVersion{
		corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, networkingv1.SchemeGroupVersion,
		authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion,
	} {
		if c.clients[gv], err = clientFor(*config, gv, transport); err != nil {
			return nil, fmt.Errorf("make client for %s: %w", gv, err)
		}
	}
	own := *config // kinds of CustomResourceDefinitions have no protobuf
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if c.clients[v1alpha1.SchemeGroupVersion], err = clientFor(own, v1alpha1.SchemeGroupVersion, transport); err != nil {
		return nil, fmt.Errorf("make client for %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	return c, nil
}

func clientFor(config rest.Config, gv schema.GroupVersion, transport *http.Client) (*rest.RESTClient, error) {
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	return rest.RESTClientForConfigAndClient(&config, transport)
}
