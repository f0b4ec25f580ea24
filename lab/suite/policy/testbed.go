package policy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// member is a network brought up on a lab of its own with its policies, a client on the first node and a server on the
// second.
type member struct {
	*suite.Testbed
	// enforcer is the network where it enforces policies, else nil; present says which there are.
	enforcer network.PolicyEnforcer
	present  policies.Presence
	// bystanders are pods that are not measured, one on each node, where policies select such.
	bystanders []*testbed.Pod
	// tables is what the server's node enforces, where its agent has tables.
	tables *result.PolicyTables
}

// allowedPorts are those that the policies of the measured pods allow.
func allowedPorts() []int {
	return append([]int{suite.ServicePorts.Netperf, suite.EchoPort}, suite.ServicePorts.Data...)
}

// open brings a network up. After an error nothing of it is left.
func (s *Suite) open(ctx context.Context, n network.Network) (m *member, err error) {
	m = &member{}
	if enforcer, ok := n.(network.PolicyEnforcer); ok {
		m.enforcer, m.present = enforcer, enforcer.Present()
	}
	m.Testbed, err = suite.Open(ctx, n, testbed.Options{Nodes: 2, MTU: s.MTU}, func(t *suite.Testbed) error {
		m.Testbed = t
		return m.fill(ctx, s.Cells)
	})
	return m, err
}

func (m *member) fill(ctx context.Context, cells []round.Cell) error {
	if m.enforcer != nil {
		if err := m.ServeObjects(ctx, m.present.Before()...); err != nil {
			return err
		}
	}
	if err := m.Up(ctx); err != nil {
		return err
	}
	if err := m.addPods(ctx); err != nil {
		return err
	}
	if err := m.Verify(ctx); err != nil {
		return err
	}
	if err := m.Serve(ctx, cells, suite.ServicePorts, false); err != nil {
		return err
	}
	if _, err := m.Listen(ctx, m.Server[result.CrossNode], suite.EchoPort, 0); err != nil {
		return err
	}
	return m.enforce(ctx)
}

// addPods makes the measured pods, and those beside them.
func (m *member) addPods(ctx context.Context) (err error) {
	pod := func(name string, labels map[string]string) policies.Pod {
		return policies.Pod{Namespace: policies.Default, Name: name, Labels: labels}
	}
	if m.Client, err = m.addMeasured(ctx, 0, pod("client", policies.ClientLabels)); err != nil {
		return err
	}
	if m.Server[result.CrossNode], err = m.addMeasured(ctx, 1, pod("far", policies.ServerLabels)); err != nil {
		return err
	}
	if m.present.Bystanders() {
		for node := range m.Lab.Nodes() {
			bystander, err := m.AddPod(ctx, node, pod(fmt.Sprintf("bystander%d", node), policies.BystanderLabels))
			if err != nil {
				return err
			}
			m.bystanders = append(m.bystanders, bystander)
		}
	}
	for _, p := range m.present.Beside() {
		if _, err := m.AddPod(ctx, 1, p); err != nil {
			return err
		}
	}
	return nil
}

// addMeasured makes a pod that is measured. The API server lacks its addresses where other nodes have to take it for
// external.
func (m *member) addMeasured(ctx context.Context, node int, p policies.Pod) (*testbed.Pod, error) {
	put := func(objects ...runtime.Object) error {
		for _, o := range objects {
			if pod := o.(*corev1.Pod); m.present.External() {
				pod.Status.PodIP, pod.Status.PodIPs = "", nil
			}
		}
		return m.Put(ctx, objects...)
	}
	pod, err := network.AddKnownPod(ctx, m.Network, m.Lab, m.Lab.Node(node), p, put)
	if err != nil {
		return nil, err
	}
	return pod, m.Prepare(pod.Netns, suite.ServiceReserved)
}
