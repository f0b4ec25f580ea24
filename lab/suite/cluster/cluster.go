// Package cluster is the suite that measures a live Kubernetes cluster, whatever its network: clients and servers are
// pods on two nodes, and the networks compared are the routes from one to the other. Package remote sends the requests.
package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/suite/cluster/remote"
	"github.com/beeline-cni/beeline/lab/worker"
)

// API is what the bench asks of a cluster, as remote.Client answers it.
type API interface {
	Version(ctx context.Context) (string, error)
	Get(ctx context.Context, into runtime.Object, namespace, name string) error
	List(ctx context.Context, into runtime.Object, namespace, selector string) error
	Create(ctx context.Context, object remote.Object) error
	Delete(ctx context.Context, object remote.Object) error
	SetServicePorts(ctx context.Context, namespace, name string, ports []corev1.ServicePort) error
	// Worker starts a worker in a pod of the bench. It ends with the context.
	Worker(ctx context.Context, namespace, pod string) (*worker.Conn, error)
}

// Connect returns the API of the cluster that a kubeconfig file names.
func Connect(kubeconfig, contextName, version string) (API, error) {
	client, err := remote.Open(kubeconfig, contextName, "beeline-bench/"+version)
	if err != nil {
		return nil, err
	}
	return remoteAPI{client}, nil
}

type remoteAPI struct{ *remote.Client }

func (c remoteAPI) Worker(ctx context.Context, namespace, pod string) (*worker.Conn, error) {
	p, err := c.Start(ctx, namespace, pod, containerName, "beeline-bench", "work")
	if err != nil {
		return nil, err
	}
	return worker.NewConn(p.In, p.Out, p.Close), nil
}

// Options say where in a cluster a run is made.
type Options struct {
	// Namespace is one that exists and is used; empty: the run creates one of its own and deletes it.
	Namespace string
	// Client and Server name the nodes of the two ends; empty: chosen.
	Client, Server string
	// Image is that of the pods; PullSecret names a Secret in Namespace that the nodes need to pull it.
	Image, PullSecret string
	// HostPorts is the first of the ports that pods in the nodes' own network use.
	HostPorts int
}

// The defaults of Options.
const (
	DefaultImage = "localhost/beeline-bench:latest"
	// DefaultHostPorts is below the ports that kernels give to clients and outside those of NodePorts.
	DefaultHostPorts = 23400
)

// What the parts of a run take, about, beside the rounds.
const (
	bringUp  = 8 * time.Second
	takeDown = 8 * time.Second
	perRoute = time.Second // looking at it
)

// Estimate is about how long the run takes if no round is discarded.
func (s *Suite) Estimate() time.Duration {
	n := len(s.networks) + 1 // the baseline twice
	return bringUp + takeDown + time.Duration(len(s.networks)*len(s.paths()))*perRoute +
		s.Schedule.Estimate(n) + time.Duration(s.Rounds*n)*quiet
}

// Limit is how long the run may take: whatever hangs, it ends then, and its pods end by themselves.
func (s *Suite) Limit() time.Duration { return 3*s.Estimate() + 10*time.Minute }

// Validate names everything that is wrong.
func (s *Suite) Validate() error {
	if len(s.networks) == 0 {
		return fmt.Errorf("no networks; there are: %s", strings.Join(names(All()), ", "))
	}
	last := s.HostPorts + len(newPorts(s.Cells)) - 1
	if s.HostPorts < 1024 || last > 65535 {
		return fmt.Errorf("ports %d to %d on the nodes: want them between 1024 and 65535", s.HostPorts, last)
	}
	return s.Schedule.Validate()
}
