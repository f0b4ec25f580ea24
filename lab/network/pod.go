package network

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// AddKnownPod makes a pod as a cluster does: it is known before its network is made, and its addresses are afterwards. Who
// enforces policies keeps a pod closed that nobody has told of. put tells the API server, or whoever stands for it, of the Pod;
// the node of p and its addresses are filled in, also in the Pod that is returned.
func AddKnownPod(ctx context.Context, c Network, lab *testbed.Lab, node *testbed.Node, p policies.Pod, put func(...runtime.Object) error) (*testbed.Pod, policies.Pod, error) {
	p.Node = node.Name
	if err := put(p.Object()); err != nil {
		return nil, p, fmt.Errorf("tell of pod %s: %w", p.Key(), err)
	}
	pod, err := AddPod(AsPod(ctx, p), c, lab, node, p.Name)
	if err != nil {
		return nil, p, fmt.Errorf("add pod %s of %s: %w", p.Name, c.Name(), err)
	}
	p.Addresses = pod.Addresses
	if err := put(p.Object()); err != nil {
		return nil, p, fmt.Errorf("tell of addresses of pod %s: %w", p.Key(), err)
	}
	return pod, p, nil
}
