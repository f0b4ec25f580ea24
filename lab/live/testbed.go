package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/measure"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/worker"
	"github.com/beeline-cni/beeline/lab/workload"
)

// testbed is what a run has created in the cluster.
type Testbed struct {
	api       API
	plan      Plan
	progress  *measure.Progress
	run       string
	token     string
	namespace string
	ports     ports
	client    corev1.Node
	server    corev1.Node
	pods      map[role]corev1.Pod
	services  map[role]corev1.Service
	sessions  map[role]*session
	// numbers are the ports on which each server listens.
	numbers map[role][]int
	// cpu is the only one that both ends may use; nil: any.
	cpu *int
}

func newTestbed(api API, p Plan) *Testbed {
	return &Testbed{
		api: api, plan: p, run: newRunName(), token: newToken(), ports: newPorts(p.Cells),
		pods: map[role]corev1.Pod{}, services: map[role]corev1.Service{}, sessions: map[role]*session{}, numbers: map[role][]int{},
		progress: measure.NewProgress(io.Discard, false, 0),
	}
}

// ErrLeft says that something that a run has created is still in the cluster.
var ErrLeft = errors.New("not everything is deleted")

// The bounds of what is waited for.
const (
	podsWait   = 3 * time.Minute
	deleteWait = 2 * time.Minute
	pollPeriod = 500 * time.Millisecond
)

// up creates everything and starts the workers. After an error, down still has to be called.
func (b *Testbed) up(ctx context.Context) error {
	if b.namespace = b.plan.Namespace; b.namespace == "" {
		space := newNamespace(b.run)
		b.namespace = space.Name
		if err := b.api.CreateNamespace(ctx, space); err != nil {
			if isForbidden(err) {
				b.namespace = "" // after other errors it may be there
			}
			return explainForbidden(err, "with --namespace it uses one that exists, and needs no rights on namespaces")
		}
	}
	if err := b.createServices(ctx); err != nil {
		return err
	}
	for _, r := range b.plan.roles() {
		if err := b.api.CreatePod(ctx, newPod(b.namespace, b.run, r, b.node(r).Name, b.plan.Options, b.plan.Limit())); err != nil {
			return explainForbidden(err, "pods in the network of their node need a namespace labelled pod-security.kubernetes.io/enforce=privileged")
		}
	}
	if err := b.waitForPods(ctx); err != nil {
		return err
	}
	for r := range b.pods {
		b.sessions[r] = &session{open: func(ctx context.Context) (*worker.Conn, error) {
			return b.api.Worker(ctx, b.namespace, podName(b.run, r))
		}}
	}
	return nil
}

// choose chooses the nodes of the two ends.
func (b *Testbed) choose(ctx context.Context) error {
	nodes, err := b.api.Nodes(ctx)
	if err != nil {
		return err
	}
	b.client, b.server, err = chooseNodes(nodes, b.plan.Client, b.plan.Server)
	return err
}

func explainForbidden(err error, advice string) error {
	if isForbidden(err) {
		return fmt.Errorf("%w (%s; deploy/bench-rbac.yaml has the rights that the bench needs)", err, advice)
	}
	return err
}

// node is where a pod belongs.
func (b *Testbed) node(r role) corev1.Node {
	if r.onServer() {
		return b.server
	}
	return b.client
}

// createServices creates the Services, and has each of their ports be the same number everywhere.
func (b *Testbed) createServices(ctx context.Context) error {
	for _, r := range b.plan.services() {
		service := newService(b.namespace, b.run, r, b.plan.IPv6, b.ports)
		if err := b.api.CreateService(ctx, service); err != nil {
			return err
		}
		numbers, err := b.ports.given(service.Spec.Ports)
		if err != nil {
			return err
		}
		if err := b.api.SetServicePorts(ctx, b.namespace, service.Name, b.ports.service(numbers, true)); err != nil {
			return err
		}
		b.services[r], b.numbers[r] = *service, numbers
	}
	return nil
}

// waitForPods waits until every pod runs.
func (b *Testbed) waitForPods(ctx context.Context) error {
	began := time.Now()
	for {
		pods, err := b.api.Pods(ctx, b.namespace, runSelector(b.run))
		if err != nil {
			return err
		}
		waiting := "pods that were created are not there any more"
		b.pods = map[role]corev1.Pod{}
		for _, p := range pods {
			if err := hopeless(p, b.plan.Image); err != nil {
				return err
			}
			if why := notRunning(p); why != "" {
				waiting = fmt.Sprintf("pod %s on node %s %s", p.Name, p.Spec.NodeName, why)
				continue
			}
			b.pods[role(p.Labels[labelRole])] = p
		}
		if want := len(b.plan.roles()); len(b.pods) == want {
			return nil
		}
		b.progress.Status("%d of %d pods run", len(b.pods), len(b.plan.roles()))
		if time.Since(began) > podsWait {
			return fmt.Errorf("after %v, %s", podsWait, waiting)
		}
		if err := pause(ctx, pollPeriod); err != nil {
			return err
		}
	}
}

// notRunning says what a pod waits for; empty when it runs and has its addresses.
func notRunning(p corev1.Pod) string {
	if p.Status.Phase == corev1.PodRunning && len(p.Status.PodIPs) > 0 {
		return ""
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return fmt.Sprintf("waits: %s %s", w.Reason, w.Message)
		}
	}
	return fmt.Sprintf("is %s; kubectl describe pod says why", p.Status.Phase)
}

// hopeless gives the error of a pod that will not run, with what to do about it.
func hopeless(p corev1.Pod, image string) error {
	if p.Status.Phase == corev1.PodFailed {
		return fmt.Errorf("pod %s on node %s failed: %s %s", p.Name, p.Spec.NodeName, p.Status.Reason, p.Status.Message)
	}
	for _, c := range p.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
			return fmt.Errorf("node %s has no image %s: %s. Without a registry: make image-bench, copy bin/beeline-bench.tar to the node and there "+
				"`ctr -n k8s.io images import --local beeline-bench.tar`. With one: push the image there and name it with --image", p.Spec.NodeName, image, w.Message)
		case "CreateContainerError", "RunContainerError", "CreateContainerConfigError":
			return fmt.Errorf("pod %s on node %s does not start: %s %s", p.Name, p.Spec.NodeName, w.Reason, w.Message)
		}
	}
	return nil
}

// listen makes the servers' workers listen.
func (b *Testbed) listen(ctx context.Context) error {
	for r := range b.pods {
		if !r.serves() {
			continue
		}
		if b.numbers[r] == nil { // of no Service
			for i := range b.ports.count() {
				b.numbers[r] = append(b.numbers[r], b.plan.HostPorts+i)
			}
		}
		end, err := b.ownEnd(r)
		if err != nil {
			return err
		}
		if err := b.sessions[r].serve(ctx, worker.Serve{End: end, CPU: b.cpu}); err != nil {
			return fmt.Errorf("start worker in pod %s: %w", b.pods[r].Name, err)
		}
	}
	return nil
}

// ownEnd is where a server is found by its own address.
func (b *Testbed) ownEnd(r role) (worker.End, error) {
	address, err := podIP(b.pods[r], b.plan.IPv6)
	if err != nil {
		return worker.End{}, err
	}
	return b.end(r, address), nil
}

// end is where a server is found by an address.
func (b *Testbed) end(r role, address netip.Addr) worker.End {
	e := worker.End{Token: b.token}
	e.Address = address
	e.Control, e.Ports = b.ports.assign(b.numbers[r])
	return e
}

// reach is where a network's client finds its server on a path.
func (b *Testbed) reach(c Network, path result.Path) (worker.End, error) {
	r := c.servers[path]
	switch c.address {
	case clusterAddress:
		address, err := netip.ParseAddr(b.services[r].Spec.ClusterIP)
		if err != nil {
			return worker.End{}, fmt.Errorf("service %s has no address: %w", b.services[r].Name, err)
		}
		return b.end(r, address), nil
	case nodeAddress:
		address, err := nodeIP(b.node(r), b.plan.IPv6)
		return b.end(r, address), err
	}
	end, err := b.ownEnd(r)
	if b.services[r].Name != "" {
		// Translated, a connection by the Service is the same pair of addresses and ports to the server as one by the pod's own
		// address. One that rests from the other would refuse it.
		end.Ports.Data = workload.Consecutive(b.plan.HostPorts, b.ports.data)
	}
	return end, err
}

// down ends the workers and deletes what was created, whatever the state it is in, and waits until it is gone.
func (b *Testbed) down(ctx context.Context) error {
	for _, s := range b.sessions {
		s.close()
	}
	if b.namespace == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteWait)
	defer cancel()
	return b.remove(ctx)
}

func (b *Testbed) remove(ctx context.Context) (err error) {
	if b.plan.Namespace == "" {
		err = removeNamespace(ctx, b.api, b.namespace)
	} else {
		err = removeObjects(ctx, b.api, b.namespace, runSelector(b.run))
	}
	if err != nil {
		return fmt.Errorf("%w: %w; `beeline-lab bench --clean` with the same --kubeconfig, --context and --namespace removes what is left", ErrLeft, err)
	}
	return nil
}

// pause waits, or gives the context's error when that ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
