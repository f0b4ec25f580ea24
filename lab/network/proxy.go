package network

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Proxy is a network that makes Services work, of which an API server tells it.
type Proxy interface {
	Network
	// WithKubeconfig gives the network whose programs find the API server by a kubeconfig file. Up is called on that one.
	WithKubeconfig(kubeconfig string) Proxy
	// StartProxy starts what takes care of Services on every node of a lab, where Up has not done so already. Pods need
	// not be there. It does not wait for Services to work.
	StartProxy(ctx context.Context, lab *testbed.Lab) error
	// ProxyPID is the process id of what takes care of Services on a node, 0 where there is none.
	ProxyPID(node *testbed.Node) int
}

// Proxies are the networks that make Services work, in the order in which tables show them.
func Proxies() []Proxy {
	return []Proxy{
		BeelineServices{},
		BeelineServices{AtTC: true},
		KubeProxy{Mode: "iptables"},
		KubeProxy{Mode: "nftables"},
		KubeProxy{Mode: "ipvs"},
	}
}

// apiPort is where a lab's API server listens on the loopback of each node.
const apiPort = 6443

// ServeObjects lets an API server answer on the loopback of every node of a lab, tells it of the nodes, and gives the
// kubeconfig file for programs there. The server ends with Close.
func ServeObjects(ctx context.Context, lab *testbed.Lab) (server *apiserver.Server, kubeconfig string, err error) {
	server = apiserver.New()
	defer func() {
		if err != nil {
			server.Close()
		}
	}()
	address := fmt.Sprintf("127.0.0.1:%d", apiPort)
	var nodes []runtime.Object
	for _, node := range lab.Nodes() {
		var listener net.Listener
		err := node.Place().Do(func() (err error) {
			listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			return err
		})
		if err != nil {
			return nil, "", fmt.Errorf("listen as API server on %s: %w", node.Name, err)
		}
		server.Serve(listener)
		nodes = append(nodes, services.Node(node))
	}
	if err := server.Put(nodes...); err != nil {
		return nil, "", err
	}
	kubeconfig = filepath.Join(lab.Dir(), "kubeconfig")
	return server, kubeconfig, os.WriteFile(kubeconfig, apiserver.Kubeconfig("http://"+address), 0o600)
}
