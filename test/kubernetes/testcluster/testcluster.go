// Package testcluster is the interface to a Kubernetes cluster under test: the testbed's, or the cluster of a kubeconfig.
package testcluster

import (
	"context"
	"os"
	"os/exec"

	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
)

const (
	// KubeconfigVariable is the kubeconfig of a cluster other than the testbed's. Without it, Open opens the testbed.
	KubeconfigVariable = "BEELINE_TEST_KUBECONFIG"
	// ImageVariable is the probe's image on such a cluster, in a registry or imported into its nodes.
	ImageVariable = "BEELINE_TEST_PROBE_IMAGE"
	// DefaultImage is the probe's image on the testbed: test/kubernetes/probe, at /probe.
	DefaultImage = "localhost/beeline-probe:latest"
)

// Cluster is a cluster under test. *testbed.Testbed has more methods, such as restarting a node.
type Cluster interface {
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig() string
	// Nodes are the names of the nodes.
	Nodes(ctx context.Context) ([]string, error)
	// Command makes a command outside of the nodes, with KUBECONFIG set and kubectl in its PATH.
	Command(ctx context.Context, name string, args ...string) *exec.Cmd
	// NodeCommand makes a command as root on a node, in its namespaces.
	NodeCommand(ctx context.Context, node string, args ...string) (*exec.Cmd, error)
	// Load imports an image archive into the nodes' container runtimes.
	Load(ctx context.Context, archive string, nodes ...string) error
}

// Image is the probe's image.
func Image() string {
	if name := os.Getenv(ImageVariable); name != "" {
		return name
	}
	return DefaultImage
}

// Open opens the cluster under test.
func Open() (Cluster, error) {
	if path := os.Getenv(KubeconfigVariable); path != "" {
		return openRemote(path)
	}
	return testbed.Open()
}
