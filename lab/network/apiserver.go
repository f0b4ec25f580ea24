package network

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// apiPort is the API server's, on the loopback of each node.
const apiPort = 6443

// kubeletAnnotation is one that every kubelet writes: agents of others count on a Node with annotations.
const kubeletAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// Kubeconfig is the kubeconfig file of a lab's API server, for programs on its nodes.
func Kubeconfig(lab *testbed.Lab) string { return filepath.Join(lab.Dir(), "kubeconfig") }

func hasAPIServer(lab *testbed.Lab) bool {
	_, err := os.Stat(Kubeconfig(lab))
	return err == nil
}

// ServeObjects starts an API server that listens on the loopback of every node of a lab and has the nodes' objects. It
// returns the kubeconfig file for programs there. The server ends with Close.
func ServeObjects(ctx context.Context, lab *testbed.Lab) (server *apiserver.Server, kubeconfig string, err error) {
	server = apiserver.New()
	defer func() {
		if err != nil {
			server.Close()
		}
	}()
	address := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), apiPort)
	var nodes []runtime.Object
	for _, node := range lab.Nodes() {
		listener, err := node.Listen(ctx, address)
		if err != nil {
			return nil, "", fmt.Errorf("listen as API server on %s: %w", node.Name, err)
		}
		server.Serve(listener)
		object := services.Node(node)
		object.Annotations = map[string]string{kubeletAnnotation: "true"}
		nodes = append(nodes, object)
	}
	if err := server.Put(nodes...); err != nil {
		return nil, "", err
	}
	kubeconfig = Kubeconfig(lab)
	return server, kubeconfig, os.WriteFile(kubeconfig, apiserver.Kubeconfig("http://"+address.String()), 0o600)
}
