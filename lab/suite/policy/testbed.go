package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	// enforcer is the network where it enforces policies, else nil. objects is then what exists; the API server has the
	// same where the network watches one.
	enforcer network.PolicyEnforcer
	objects  *policies.State
	// known are the Pods of the lab's pods, by name.
	known map[string]policies.Pod
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
	m = &member{Testbed: suite.New(n), known: map[string]policies.Pod{}}
	m.enforcer, _ = n.(network.PolicyEnforcer)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := m.OpenLab(ctx, testbed.Options{Nodes: 2, MTU: s.MTU}); err != nil {
		return m, err
	}
	if err := m.start(ctx); err != nil {
		return m, fmt.Errorf("bring up %s: %w", n.Name(), err)
	}
	if err := m.addPods(ctx); err != nil {
		return m, err
	}
	if err := m.Verify(ctx); err != nil {
		return m, err
	}
	if err := m.Serve(ctx, s.Cells, suite.ServicePorts, false); err != nil {
		return m, err
	}
	if err := m.Echo(ctx); err != nil {
		return m, err
	}
	return m, m.enforce(ctx)
}

// start brings the network up, with the objects that exist before any pod.
func (m *member) start(ctx context.Context) (err error) {
	if m.enforcer == nil {
		return m.Network.Up(ctx, m.Lab)
	}
	before, err := m.enforcer.Present().Before()
	if err != nil {
		return err
	}
	m.objects = policies.NewState()
	if err := m.objects.Put(before...); err != nil {
		return err
	}
	if m.enforcer.Watches() {
		if err := m.ServeObjects(ctx, before...); err != nil {
			return err
		}
	}
	return m.Network.Up(ctx, m.Lab)
}

// put adds or changes objects. Where the network does not watch an API server, it enforces them.
func (m *member) put(ctx context.Context, objects ...runtime.Object) error {
	if m.enforcer == nil {
		return nil
	}
	if m.API != nil {
		return m.API.Put(objects...)
	}
	if err := m.objects.Put(objects...); err != nil {
		return err
	}
	_, err := m.enforcer.Enforce(ctx, m.Lab, m.objects)
	return err
}

// remove is put's opposite.
func (m *member) remove(ctx context.Context, objects ...runtime.Object) error {
	if m.API != nil {
		return m.API.Delete(objects...)
	}
	m.objects.Delete(objects...)
	_, err := m.enforcer.Enforce(ctx, m.Lab, m.objects)
	return err
}

// addPods makes the measured pods, and those beside them.
func (m *member) addPods(ctx context.Context) (err error) {
	put := m.put
	if m.enforcer != nil && m.enforcer.Present().External() {
		put = m.putWithoutAddresses
	}
	if m.Client, err = m.addPodBy(ctx, 0, policies.Pod{Namespace: policies.Default, Name: "client", Labels: policies.ClientLabels}, put); err != nil {
		return err
	}
	server := policies.Pod{Namespace: policies.Default, Name: "far", Labels: policies.ServerLabels}
	if m.Server[result.CrossNode], err = m.addPodBy(ctx, 1, server, put); err != nil {
		return err
	}
	if err := m.addOthers(ctx); err != nil {
		return err
	}
	for _, pod := range []*testbed.Pod{m.Client, m.Server[result.CrossNode]} {
		if err := m.Prepare(pod.Netns, suite.ServiceReserved); err != nil {
			return err
		}
	}
	return nil
}

// addOthers makes the pods that are not measured.
func (m *member) addOthers(ctx context.Context) error {
	if m.enforcer == nil {
		return nil
	}
	if m.enforcer.Present().Bystanders() {
		for node := range m.Lab.Nodes() {
			p := policies.Pod{Namespace: policies.Default, Name: fmt.Sprintf("bystander%d", node), Labels: policies.BystanderLabels}
			pod, err := m.addPod(ctx, node, p)
			if err != nil {
				return err
			}
			m.bystanders = append(m.bystanders, pod)
		}
	}
	beside, err := m.enforcer.Present().Beside()
	for _, p := range beside {
		if _, err := m.addPod(ctx, 1, p); err != nil {
			return err
		}
	}
	return err
}

// addPod makes a pod and its object.
func (m *member) addPod(ctx context.Context, node int, p policies.Pod) (*testbed.Pod, error) {
	return m.addPodBy(ctx, node, p, m.put)
}

func (m *member) addPodBy(ctx context.Context, node int, p policies.Pod, by func(context.Context, ...runtime.Object) error) (*testbed.Pod, error) {
	put := func(objects ...runtime.Object) error { return by(ctx, objects...) }
	pod, known, err := network.AddKnownPod(ctx, m.Network, m.Lab, m.Lab.Node(node), p, put)
	m.known[p.Name] = known
	return pod, err
}

// putWithoutAddresses puts the objects of pods without their addresses.
func (m *member) putWithoutAddresses(ctx context.Context, objects ...runtime.Object) error {
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok {
			pod.Status.PodIP, pod.Status.PodIPs = "", nil
		}
	}
	return m.put(ctx, objects...)
}

// Sample runs one cell.
func (m *member) Sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	m.Turn++
	return m.Measure(ctx, cell, length, m.Servers[cell.Path])
}
