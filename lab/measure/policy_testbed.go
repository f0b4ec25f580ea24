package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// policyTestbed is a network brought up on a lab of its own with its policies, a client on the first node and a server on the
// second.
type policyTestbed struct {
	*Testbed
	// policed is the network where it enforces policies, else nil. objects is then what there is, and api who serves it
	// where the network watches an API server.
	policed network.PolicyEnforcer
	objects *policies.State
	api     *apiserver.Server
	// known are the Pods of the lab's pods, by the names of those.
	known map[string]policies.Pod
	// bystanders are pods that are not measured, one on each node, where policies select such.
	bystanders []*testbed.Pod
	// tables is what the server's node has in force, where its agent has tables.
	tables *result.PolicyTables
	echo   net.Listener
	turn   int
}

// policyPorts are those that the policies of the measured pods allow.
func policyPorts() []int {
	return append([]int{servicePorts.Netperf, echoPort}, servicePorts.Data...)
}

// openPolicyTestbed brings a network up. After an error nothing of it is left.
func openPolicyTestbed(ctx context.Context, c network.Network, p PolicyPlan) (l *policyTestbed, err error) {
	l = &policyTestbed{Testbed: newTestbed(c), known: map[string]policies.Pod{}}
	l.policed, _ = c.(network.PolicyEnforcer)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	l.lab, err = testbed.Up(ctx, testbed.Options{Name: nextLabName(), Nodes: 2, MTU: p.MTU, Network: c.Name()})
	if err != nil {
		return l, fmt.Errorf("bring up lab of %s: %w", c.Name(), err)
	}
	if err := l.start(ctx); err != nil {
		return l, fmt.Errorf("bring up %s: %w", c.Name(), err)
	}
	if err := l.addPods(ctx); err != nil {
		return l, err
	}
	if err := verifyOpen(ctx, l.Testbed); err != nil {
		return l, err
	}
	if l.echo, err = l.serveFar(ctx, p.Cells); err != nil || ctx.Err() != nil {
		return l, errors.Join(err, ctx.Err())
	}
	return l, l.govern(ctx)
}

// start brings the network up, with what is there before any pod.
func (l *policyTestbed) start(ctx context.Context) (err error) {
	if l.policed == nil {
		return l.network.Up(ctx, l.lab)
	}
	before, err := l.policed.Present().Before()
	if err != nil {
		return err
	}
	l.objects = policies.NewState()
	if err := l.objects.Put(before...); err != nil {
		return err
	}
	if l.policed.Watches() {
		var kubeconfig string
		if l.api, kubeconfig, err = network.ServeObjects(ctx, l.lab); err != nil {
			return err
		}
		if err := l.api.Put(before...); err != nil {
			return err
		}
		l.policed = l.policed.WithKubeconfig(kubeconfig)
		l.network = l.policed
	}
	return l.network.Up(ctx, l.lab)
}

// put tells of objects, and where nobody watches, brings them into force.
func (l *policyTestbed) put(ctx context.Context, objects ...runtime.Object) error {
	if l.policed == nil {
		return nil
	}
	if l.api != nil {
		return l.api.Put(objects...)
	}
	if err := l.objects.Put(objects...); err != nil {
		return err
	}
	_, err := l.policed.Enforce(ctx, l.lab, l.objects)
	return err
}

// remove is put's opposite.
func (l *policyTestbed) remove(ctx context.Context, objects ...runtime.Object) error {
	if l.api != nil {
		return l.api.Delete(objects...)
	}
	l.objects.Delete(objects...)
	_, err := l.policed.Enforce(ctx, l.lab, l.objects)
	return err
}

// addPods makes the measured pods, and those beside them.
func (l *policyTestbed) addPods(ctx context.Context) (err error) {
	tell := l.put
	if l.policed != nil && l.policed.Present().Nameless() {
		tell = l.putNameless
	}
	if l.client, err = l.addPodAs(ctx, 0, policies.Pod{Namespace: policies.Default, Name: "client", Labels: policies.ClientLabels}, tell); err != nil {
		return err
	}
	server := policies.Pod{Namespace: policies.Default, Name: "far", Labels: policies.ServerLabels}
	if l.server[result.CrossNode], err = l.addPodAs(ctx, 1, server, tell); err != nil {
		return err
	}
	if err := l.addOthers(ctx); err != nil {
		return err
	}
	for _, pod := range []*testbed.Pod{l.client, l.server[result.CrossNode]} {
		if err := l.prepare(pod, serviceReserved); err != nil {
			return err
		}
	}
	return nil
}

// addOthers makes the pods that are not measured.
func (l *policyTestbed) addOthers(ctx context.Context) error {
	if l.policed == nil {
		return nil
	}
	if l.policed.Present().Bystanders() {
		for node := range l.lab.Nodes() {
			p := policies.Pod{Namespace: policies.Default, Name: fmt.Sprintf("bystander%d", node), Labels: policies.BystanderLabels}
			pod, err := l.addPod(ctx, node, p)
			if err != nil {
				return err
			}
			l.bystanders = append(l.bystanders, pod)
		}
	}
	beside, err := l.policed.Present().Beside()
	for _, p := range beside {
		if _, err := l.addPod(ctx, 1, p); err != nil {
			return err
		}
	}
	return err
}

// addPod makes a pod and tells of it.
func (l *policyTestbed) addPod(ctx context.Context, node int, p policies.Pod) (*testbed.Pod, error) {
	return l.addPodAs(ctx, node, p, l.put)
}

func (l *policyTestbed) addPodAs(ctx context.Context, node int, p policies.Pod, tell func(context.Context, ...runtime.Object) error) (*testbed.Pod, error) {
	put := func(objects ...runtime.Object) error { return tell(ctx, objects...) }
	pod, known, err := network.AddKnownPod(ctx, l.network, l.lab, l.lab.Node(node), p, put)
	l.known[p.Name] = known
	return pod, err
}

// putNameless tells of pods without their addresses.
func (l *policyTestbed) putNameless(ctx context.Context, objects ...runtime.Object) error {
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok {
			pod.Status.PodIP, pod.Status.PodIPs = "", nil
		}
	}
	return l.put(ctx, objects...)
}

// sample runs one cell. What goes wrong is in the sample's Error.
func (l *policyTestbed) sample(ctx context.Context, cell Cell, length time.Duration) result.Sample {
	l.turn++
	return l.Testbed.sample(ctx, cell, workload.Request{Server: l.servers[cell.Path], Procs: cell.Procs, Length: length, Turn: l.turn})
}

// close ends everything of the testbed, whatever the state it is in.
func (l *policyTestbed) close() error {
	if l.echo != nil {
		l.echo.Close()
	}
	err := l.Testbed.close()
	if l.api != nil {
		err = errors.Join(err, l.api.Close())
	}
	return err
}
