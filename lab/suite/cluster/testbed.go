package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/wait"
	"github.com/beeline-cni/beeline/lab/worker"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Suite is a run of the suite, and what it has created in the cluster.
type Suite struct {
	round.Schedule
	Options
	API      API
	networks []Network

	progress  *round.Progress
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

	record   *result.Run
	cluster  *result.Cluster
	subjects []*subject
}

func newSuite(schedule round.Schedule, where Options) *Suite {
	return &Suite{
		Schedule: schedule, Options: where, run: newRunName(), token: rand.Text(),
		pods: map[role]corev1.Pod{}, services: map[role]corev1.Service{}, sessions: map[role]*session{}, numbers: map[role][]int{},
		progress: round.NewProgress(io.Discard, 0),
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

// create creates everything and starts the workers. After an error, the caller still has to delete it.
func (s *Suite) create(ctx context.Context) error {
	if s.namespace = s.Namespace; s.namespace == "" {
		space := newNamespace(s.run)
		s.namespace = space.Name
		if err := s.API.Create(ctx, space); err != nil {
			if isForbidden(err) {
				s.namespace = "" // after other errors it may be there
			}
			return explainForbidden(err, "with --namespace it uses one that exists, and needs no rights on namespaces")
		}
	}
	if err := s.createServices(ctx); err != nil {
		return err
	}
	for _, r := range s.roles() {
		if err := s.API.Create(ctx, newPod(s.namespace, s.run, r, s.node(r).Name, s.Options, s.Limit())); err != nil {
			return explainForbidden(err, "pods in the network of their node need a namespace labelled pod-security.kubernetes.io/enforce=privileged")
		}
	}
	if err := s.waitForPods(ctx); err != nil {
		return err
	}
	for r := range s.pods {
		s.sessions[r] = &session{open: func(ctx context.Context) (*worker.Conn, error) {
			return s.API.Worker(ctx, s.namespace, podName(s.run, r))
		}}
	}
	return nil
}

// choose chooses the nodes of the two ends.
func (s *Suite) choose(ctx context.Context) error {
	var nodes corev1.NodeList
	err := s.API.List(ctx, &nodes, "", "")
	if err == nil {
		s.client, s.server, err = chooseNodes(nodes.Items, s.Client, s.Server)
	}
	return err
}

func explainForbidden(err error, advice string) error {
	if isForbidden(err) {
		return fmt.Errorf("%w (%s; deploy/bench-rbac.yaml has the rights that the bench needs)", err, advice)
	}
	return err
}

// node is where a pod belongs.
func (s *Suite) node(r role) corev1.Node {
	if r.onServer() {
		return s.server
	}
	return s.client
}

// createServices creates the Services, and has each of their ports be the same number everywhere.
func (s *Suite) createServices(ctx context.Context) error {
	for _, r := range s.rolesWithService() {
		service := newService(s.namespace, s.run, r, s.IPv6, s.ports)
		if err := s.API.Create(ctx, service); err != nil {
			return err
		}
		numbers, err := s.ports.given(service.Spec.Ports)
		if err != nil {
			return err
		}
		if err := s.API.SetServicePorts(ctx, s.namespace, service.Name, s.ports.service(numbers, true)); err != nil {
			return err
		}
		s.services[r], s.numbers[r] = *service, numbers
	}
	return nil
}

// waitForPods waits until every pod runs.
func (s *Suite) waitForPods(ctx context.Context) error {
	began := time.Now()
	for {
		var pods corev1.PodList
		if err := s.API.List(ctx, &pods, s.namespace, runSelector(s.run)); err != nil {
			return err
		}
		waiting := "pods that were created are not there any more"
		s.pods = map[role]corev1.Pod{}
		for _, p := range pods.Items {
			if err := hopeless(p, s.Image); err != nil {
				return err
			}
			if why := notRunning(p); why != "" {
				waiting = fmt.Sprintf("pod %s on node %s %s", p.Name, p.Spec.NodeName, why)
				continue
			}
			s.pods[role(p.Labels[labelRole])] = p
		}
		if want := len(s.roles()); len(s.pods) == want {
			return nil
		}
		if time.Since(began) > podsWait {
			return fmt.Errorf("after %v, %s", podsWait, waiting)
		}
		if err := wait.For(ctx, pollPeriod); err != nil {
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

// hopeless returns the error of a pod that will not run, with what to do about it.
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
func (s *Suite) listen(ctx context.Context) error {
	for r := range s.pods {
		if !r.serves() {
			continue
		}
		if s.numbers[r] == nil { // of no Service
			for i := range s.ports {
				s.numbers[r] = append(s.numbers[r], s.HostPorts+i)
			}
		}
		end, err := s.ownEnd(r)
		if err != nil {
			return err
		}
		if err := s.sessions[r].serve(ctx, worker.Serve{End: end, CPU: s.cpu}); err != nil {
			return fmt.Errorf("start worker in pod %s: %w", s.pods[r].Name, err)
		}
	}
	return nil
}

// ownEnd is where a server is found by its own address.
func (s *Suite) ownEnd(r role) (worker.End, error) {
	address, err := podIP(s.pods[r], s.IPv6)
	if err != nil {
		return worker.End{}, err
	}
	return s.end(r, address), nil
}

// end is where a server is found by an address.
func (s *Suite) end(r role, address netip.Addr) worker.End {
	e := s.ports.assign(s.numbers[r])
	e.Token, e.Address = s.token, address
	return e
}

// reach is where a network's client finds its server on a path.
func (s *Suite) reach(c Network, path result.Path) (worker.End, error) {
	r := c.servers[path]
	switch c.address {
	case clusterAddress:
		address, err := netip.ParseAddr(s.services[r].Spec.ClusterIP)
		if err != nil {
			return worker.End{}, fmt.Errorf("service %s has no address: %w", s.services[r].Name, err)
		}
		return s.end(r, address), nil
	case nodeAddress:
		address, err := nodeIP(s.node(r), s.IPv6)
		return s.end(r, address), err
	}
	end, err := s.ownEnd(r)
	if s.services[r].Name != "" {
		// Translated, a connection by the Service is the same pair of addresses and ports to the server as one by the
		// pod's own address. A connection in TIME_WAIT from the other would reject it.
		end.Ports.Data = workload.Consecutive(s.HostPorts, len(end.Ports.Data))
	}
	return end, err
}

// down ends the workers and deletes what was created, whatever the state it is in, and waits until it is gone.
func (s *Suite) down(ctx context.Context) error {
	for _, s := range s.sessions {
		s.close()
	}
	if s.namespace == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteWait)
	defer cancel()
	return s.remove(ctx)
}

func (s *Suite) remove(ctx context.Context) error {
	if err := remove(ctx, s.API, s.Namespace, runSelector(s.run)); err != nil {
		return fmt.Errorf("%w: %w; `beeline-lab bench --clean` with the same --kubeconfig, --context and --namespace removes what is left", ErrLeft, err)
	}
	return nil
}
