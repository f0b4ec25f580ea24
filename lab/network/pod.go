package network

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// AddKnownPod makes a pod as a cluster does: its object exists before its network, and has the addresses afterwards.
// Agents isolate a pod that they do not know. put adds the object to the API server, or to what stands for it.
// AddKnownPod fills in the node and the addresses of p, also in the Pod that it returns.
func AddKnownPod(ctx context.Context, c Network, lab *testbed.Lab, node *testbed.Node, p policies.Pod, put func(...runtime.Object) error) (*testbed.Pod, policies.Pod, error) {
	p.Node = node.Name
	if err := put(p.Object()); err != nil {
		return nil, p, fmt.Errorf("put pod %s: %w", p.Key(), err)
	}
	pod, err := AddPod(AsPod(ctx, p), c, lab, node, p.Name)
	if err != nil {
		return nil, p, fmt.Errorf("add pod %s of %s: %w", p.Name, c.Name(), err)
	}
	p.Addresses = pod.Addresses
	if err := put(p.Object()); err != nil {
		return nil, p, fmt.Errorf("put addresses of pod %s: %w", p.Key(), err)
	}
	return pod, p, nil
}
